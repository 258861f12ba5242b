package taskdir

import (
	"path/filepath"
	"strconv"
)

// Old opens old/<n>/, where an earlier session's files were moved, for the last
// word on that session.
func (d *Dir) Old(n int) (*Dir, error) {
	path := filepath.Join(d.path, OldDir, strconv.Itoa(n))
	old, err := d.h.sub(OldDir, d.join(OldDir))
	if err != nil {
		return nil, pathError("open", path, err)
	}
	defer old.close()
	h, err := old.sub(strconv.Itoa(n), path)
	if err != nil {
		return nil, pathError("open", path, err)
	}
	return &Dir{root: d.root, name: strconv.Itoa(n), path: path, h: h}, nil
}
