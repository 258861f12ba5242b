package confine

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// setLimits sets the limits that the kernel keeps for a process and those that it
// starts. They are set for the helper, which the shell inherits them from.
func setLimits(s *spec) error {
	type limit struct {
		name     string
		resource int
		value    int64
	}
	l := s.Limits
	// 1 is what the kernel takes to mean none also where core dumps go to a program,
	// which would write them where no limit holds.
	list := []limit{{"core dumps", unix.RLIMIT_CORE, 1}}
	if l.FileSize > 0 {
		list = append(list, limit{"file size", unix.RLIMIT_FSIZE, l.FileSize})
	}
	if l.OpenFiles > 0 {
		list = append(list, limit{"open files", unix.RLIMIT_NOFILE, int64(l.OpenFiles)})
	}
	if l.Processes > 0 && s.Level == Full {
		// Counted in the user namespace, threads included; not for root.
		list = append(list, limit{"processes", unix.RLIMIT_NPROC, int64(threadsPerProcess*l.Processes + 64)})
	}
	for _, r := range list {
		var now unix.Rlimit
		if err := unix.Getrlimit(r.resource, &now); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		v := min(uint64(r.value), now.Max)
		// By this way, so that the runtime does not put the old one back.
		if err := syscall.Setrlimit(r.resource, &syscall.Rlimit{Cur: v, Max: v}); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return nil
}

// watch looks at what a command uses. It belongs to one goroutine.
type watch struct {
	spec  *spec
	disks []disk
	// avail is the machine's free memory, in bytes, when the command began.
	avail int64
	next  time.Time
	buf   []byte
}

// disk is a file system that the command can write on.
type disk struct {
	path        string
	free, files uint64 // when the command began
}

// maxFiles is how many files more there may be on a file system at the end of a
// command than at its beginning.
const maxFiles = 2_000_000

func (w *watch) init(s *spec) {
	w.spec, w.buf = s, make([]byte, 4096)
	w.avail, _ = w.memAvailable()
	seen := map[uint64]bool{}
	for _, m := range s.Mounts {
		var st unix.Stat_t
		if m.How != Write || unix.Stat(m.Path, &st) != nil || seen[st.Dev] {
			continue
		}
		seen[st.Dev] = true
		if free, files, ok := space(m.Path); ok {
			w.disks = append(w.disks, disk{m.Path, free, files})
		}
	}
}

// space returns the free bytes and the free files of a file system.
func space(path string) (free, files uint64, ok bool) {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return 0, 0, false
	}
	return st.Bavail * uint64(st.Bsize), st.Ffree, true
}

// passed returns the limit that the command has passed, in words, or "". It takes
// a twentieth of one processor at most, since many processes take long to count.
func (w *watch) passed() string {
	now := time.Now()
	if now.Before(w.next) {
		return ""
	}
	limit := w.look()
	w.next = time.Now().Add(20 * time.Since(now))
	return limit
}

func (w *watch) look() string {
	l := w.spec.Limits
	pids := w.pids()
	if l.Processes > 0 && len(pids) > l.Processes {
		return fmt.Sprintf("it had more than %d processes at once (processes in [sandbox] of config.toml)", l.Processes)
	}
	if l.Memory > 0 && w.memory(pids, l.Memory) > l.Memory {
		return fmt.Sprintf("it used more than %s of memory (memory in [sandbox] of config.toml)", Size(l.Memory))
	}
	if avail, total := w.memAvailable(); l.Memory > 0 && total > 0 && avail < min(total/30, 512<<20) && avail < w.avail-256<<20 {
		return "the machine was running out of memory while it ran"
	}
	for _, d := range w.disks {
		free, files, ok := space(d.path)
		switch {
		case !ok || free >= d.free:
		case l.Disk > 0 && d.free-free > uint64(l.Disk):
			return fmt.Sprintf("the free space of the disk that holds %s fell by more than %s while it ran (disk in [sandbox] of config.toml)", d.path, Size(l.Disk))
		case l.DiskReserve > 0 && free < uint64(l.DiskReserve) && d.free-free > 16<<20:
			return fmt.Sprintf("the disk that holds %s had less than %s left (disk_reserve in [sandbox] of config.toml)", d.path, Size(l.DiskReserve))
		}
		if ok && l.Disk > 0 && files < d.files && d.files-files > maxFiles {
			return fmt.Sprintf("the disk that holds %s got more than %d files while it ran", d.path, maxFiles)
		}
	}
	return ""
}

// count is how many processes of the command there are.
func (w *watch) count() int { return len(w.pids()) }

// pids lists the processes of the command: all in the namespace but the helper,
// or all that descend from it.
func (w *watch) pids() []int {
	if w.spec.Level != Full {
		return descendants()
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var pids []int
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil && pid != 1 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// read reads a file of /proc into the buffer; nil where it is gone.
func (w *watch) read(path string) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, w.buf)
	if err != nil {
		return nil
	}
	return w.buf[:max(n, 0)]
}

// memory returns what the processes have, in bytes: exactly only where it could
// be more than limit, since that takes longer.
func (w *watch) memory(pids []int, limit int64) int64 {
	page := int64(os.Getpagesize())
	looks := []func(string) int64{
		// All that is resident, shared or not: never too little.
		func(dir string) int64 {
			f := bytes.Fields(w.read(dir + "statm"))
			if len(f) < 2 {
				return 0
			}
			n, _ := strconv.ParseInt(string(f[1]), 10, 64)
			return n * page
		},
		// Without what comes from files, which the kernel can drop.
		func(dir string) int64 {
			b := w.read(dir + "status")
			return field(b, "RssAnon:") + field(b, "RssShmem:")
		},
		// What several processes share counts once.
		func(dir string) int64 {
			b := w.read(dir + "smaps_rollup")
			if len(b) == 0 {
				b = w.read(dir + "status")
				return field(b, "RssAnon:") + field(b, "RssShmem:")
			}
			return field(b, "Pss_Anon:") + field(b, "Pss_Shmem:")
		},
	}
	var sum int64
	for _, look := range looks {
		sum = 0
		for _, pid := range pids {
			sum += look("/proc/" + strconv.Itoa(pid) + "/")
		}
		if sum <= limit {
			break
		}
	}
	return sum
}

// field returns the number of kilobytes after a name, in bytes.
func field(b []byte, name string) int64 {
	_, rest, ok := bytes.Cut(b, append([]byte{'\n'}, name...))
	if !ok {
		return 0
	}
	f := bytes.Fields(rest)
	if len(f) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(string(f[0]), 10, 64)
	return n << 10
}

// memAvailable returns what the kernel could still give, and what there is.
func (w *watch) memAvailable() (avail, total int64) {
	b := w.read("/proc/meminfo")
	return field(b, "MemAvailable:"), field(append([]byte{'\n'}, b...), "MemTotal:")
}

// descendants lists the processes that the helper has as children, and theirs.
// Orphans come back to it, since it takes them in.
func descendants() []int {
	var all []int
	todo := []int{os.Getpid()}
	for len(todo) > 0 {
		pid := todo[0]
		todo = todo[1:]
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		for _, t := range tasks {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
			for _, f := range strings.Fields(string(b)) {
				if child, err := strconv.Atoi(f); err == nil && !slices.Contains(all, child) {
					all, todo = append(all, child), append(todo, child)
				}
			}
		}
	}
	return all
}

// killDescendants kills until there are none, or patience is over.
func killDescendants(patience time.Duration) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		pids := descendants()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			killChild(pid)
		}
	}
}

// killChild kills a process, unless its id has become another's, whose parent
// then is none of the command's.
func killChild(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if slices.Contains(descendants(), pid) {
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}
