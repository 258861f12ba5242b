package taskdir

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Offsets in the kernel's struct linux_dirent64.
const (
	direntLength = 16
	direntType   = 18
	direntName   = 19
)

// each calls fn for every entry of the directory. The name is only valid during
// the call. buf is scratch space. It reads through the shared offset of the
// descriptor: one call at a time.
func (v view) each(buf []byte, fn func(name []byte, k kind)) error {
	if _, err := unix.Seek(v.fd, 0, 0); err != nil {
		return err
	}
	for {
		n, err := unix.Getdents(v.fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n <= 0 {
			return nil
		}
		for rest := buf[:n]; len(rest) > direntName; {
			length := int(binary.NativeEndian.Uint16(rest[direntLength:]))
			if length <= direntName || length > len(rest) {
				return unix.EIO
			}
			name := rest[direntName:length]
			if i := bytes.IndexByte(name, 0); i >= 0 {
				name = name[:i]
			}
			if len(name) > 2 || (string(name) != "." && string(name) != "..") {
				fn(name, kindOfDirent(rest[direntType]))
			}
			rest = rest[length:]
		}
	}
}

func kindOfDirent(t byte) kind {
	switch t {
	case unix.DT_REG:
		return regular
	case unix.DT_DIR:
		return directory
	case unix.DT_LNK:
		return link
	case unix.DT_UNKNOWN:
		return unknown
	}
	return device
}
