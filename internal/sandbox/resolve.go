package sandbox

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Resolve returns c with the links in its paths resolved and what it only reads
// for the system's sake reduced to what exists. It looks at the disk.
func (c Ceiling) Resolve() Ceiling {
	c.Roots = resolveAll(c.Roots)
	c.Read = resolveAll(c.Read)
	c.TempDir = resolveOr(c.TempDir)
	c.Protected = withAliases(resolveAll(c.Protected))
	c.Hidden = withAliases(resolveAll(c.Hidden))
	if !c.Share {
		c.Hidden = append(c.Hidden, withAliases([]string{c.TempDir})[1:]...)
	}
	c.System = slices.DeleteFunc(resolveAll(c.System), func(p string) bool {
		_, err := os.Lstat(p)
		return err != nil || filepath.Dir(p) == p
	})
	return c
}

// Resolve returns a with the links in its paths resolved. What does not exist
// keeps its name below what does. Directories of tasks keep theirs in any case: they
// are granted without being asked for, and what an agent puts in the place of one must
// not say what that is. It looks at the disk.
func (a Ask) Resolve() Ask {
	resolveMap := func(m map[string]string) map[string]string {
		out := make(map[string]string, len(m))
		for k, v := range m {
			out[k] = resolveOr(v)
		}
		return out
	}
	a.TaskDir = inPlace(a.TaskDir)
	a.WorkDir = resolveOr(a.WorkDir)
	a.Parents = slices.Clone(a.Parents)
	for i, p := range a.Parents {
		a.Parents[i] = inPlace(p)
	}
	a.InputFiles = resolveMap(a.InputFiles)
	a.OutputFiles = resolveMap(a.OutputFiles)
	a.Named = resolveMap(a.Named)
	a.Places = resolveMap(a.Places)
	return a
}

// Paths returns the paths of a.
func (a Ask) Paths() []string {
	paths := slices.Concat([]string{a.TaskDir}, a.Parents, slices.Collect(maps.Values(a.InputFiles)), slices.Collect(maps.Values(a.OutputFiles)))
	if a.WorkDir != "" {
		paths = append(paths, a.WorkDir)
	}
	return paths
}

// Links returns the symbolic links on the way to paths, with what stands in them,
// by which programs may know what is granted by its real path. It looks at the
// disk.
func Links(paths ...string) map[string]string {
	links := map[string]string{}
	for _, p := range paths {
		if filepath.IsAbs(p) {
			follow(p, func(link, target string) { links[link] = target })
		}
	}
	return links
}

// resolveAll resolves each path. A program found through a link is needed under
// both names only by commands, which see the link's own directory too.
func resolveAll(paths []string) []string {
	out := make([]string, 0, len(paths))
	for _, p := range paths {
		out = append(out, resolveOr(p))
	}
	return out
}

// inPlace resolves the way to path and leaves what stands there as it is: if that is a
// link, opening it fails.
func inPlace(path string) string {
	if !filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(resolveOr(filepath.Dir(path)), filepath.Base(path))
}

// resolveOr returns path without links, or path as it is where that cannot be
// found out; opening it will say why.
func resolveOr(path string) string {
	if !filepath.IsAbs(path) {
		return path
	}
	if real, _, err := followLinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// maxLinks is as many links as the kernel follows in one path.
const maxLinks = 40

var errTooManyLinks = errors.New("too many links")

// followLinks returns the absolute path that path means once every link on the
// way is followed. Elements that do not exist are kept as they stand. dangling
// is set where such an element was named by a link and not by path itself:
// creating it would make a file where the link wants it.
func followLinks(path string) (real string, dangling bool, err error) {
	return follow(path, func(link, target string) {})
}

// follow is followLinks, and calls met with each link.
func follow(path string, met func(link, target string)) (real string, dangling bool, err error) {
	vol := filepath.VolumeName(path)
	sep := string(filepath.Separator)
	split := func(s string) []string {
		return slices.DeleteFunc(strings.Split(filepath.ToSlash(s), "/"), func(e string) bool { return e == "" || e == "." })
	}
	cur := vol + sep
	rest := split(filepath.Clean(path)[len(vol):])
	// own is how many elements are left when all that links put there is used up.
	own, links := len(rest), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		own = min(own, len(rest)+1)
		if name == ".." {
			cur = filepath.Dir(cur)
			continue
		}
		next := filepath.Join(cur, name)
		fi, err := os.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return filepath.Join(append([]string{next}, rest...)...), len(rest) >= own, nil
		case err != nil:
			return "", false, err
		case fi.Mode()&fs.ModeSymlink == 0:
			cur = next
			continue
		}
		if links++; links > maxLinks {
			return "", false, &fs.PathError{Op: "follow", Path: path, Err: errTooManyLinks}
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", false, err
		}
		met(next, target)
		own = min(own, len(rest))
		if filepath.IsAbs(target) {
			vol = filepath.VolumeName(target)
			cur, target = vol+sep, target[len(vol):]
		}
		rest = append(split(target), rest...)
	}
	return cur, false, nil
}
