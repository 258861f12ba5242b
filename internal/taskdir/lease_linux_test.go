package taskdir

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel sends SIGIO to who holds a lease that another open breaks. Its
// default action would end the process.
func TestBrokenLeaseIsHarmless(t *testing.T) {
	d := openTask(t)
	if !leasesWork(t, d) {
		t.Skip("writers are not known here")
	}
	write(t, d, ReplyFile, "x")
	f, err := os.Open(d.join(ReplyFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 5000 {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
			t.Fatal(err)
		}
		// Does not wait for the lease, but asks for it to be given back.
		fd, err := unix.Open(d.join(ReplyFile), unix.O_WRONLY|unix.O_NONBLOCK, 0)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			unix.Close(fd)
			t.Fatalf("a writer could open in spite of the lease: %v", err)
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWriters(t *testing.T) {
	d := openTask(t)
	if !leasesWork(t, d) {
		t.Skip("writers are not known here")
	}
	write(t, d, ReplyFile, "x")
	f, err := os.Open(d.join(ReplyFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	check := func(when string, want bool) {
		t.Helper()
		if open, known := writers(f); open != want || !known {
			t.Errorf("%s: open %v, known %v", when, open, known)
		}
	}
	check("nobody", false)
	r, err := os.Open(d.join(ReplyFile))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	check("another reader", false)
	w, err := os.OpenFile(d.join(ReplyFile), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	check("a writer", true)
	w.Close()
	check("closed", false)
	// No lease is left behind that would make a writer wait.
	fd, err := unix.Open(d.join(ReplyFile), unix.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Error(err)
	}
	unix.Close(fd)
}

func TestLocalFileSystems(t *testing.T) {
	for _, c := range []struct {
		name string
		id   int64
		want bool
	}{
		{"ext4", unix.EXT4_SUPER_MAGIC, true}, {"xfs", unix.XFS_SUPER_MAGIC, true}, {"btrfs", unix.BTRFS_SUPER_MAGIC, true}, {"tmpfs", unix.TMPFS_MAGIC, true},
		// Some systems hand the number over with its sign extended.
		{"btrfs, signed", int64(int32(unix.BTRFS_SUPER_MAGIC - 1<<32)), true},
		{"nfs", unix.NFS_SUPER_MAGIC, false}, {"smb", unix.SMB2_SUPER_MAGIC, false}, {"fuse", unix.FUSE_SUPER_MAGIC, false},
		{"overlay", unix.OVERLAYFS_SUPER_MAGIC, false}, {"9p", unix.V9FS_MAGIC, false}, {"unheard of", 0x12345678, false},
	} {
		if got := local(c.id); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
