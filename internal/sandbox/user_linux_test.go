package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func nobody(t *testing.T) *User {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	u, err := FindUser("nobody")
	if err != nil {
		t.Skip(err)
	}
	return u
}

func TestFindUser(t *testing.T) {
	for _, name := range []string{"no-such-user", "4000000000", "root", "0"} {
		if u, err := FindUser(name); err == nil {
			t.Errorf("%q is %+v", name, u)
		}
	}
	u := nobody(t)
	if again, err := FindUser("65534"); u.UID == 65534 && (err != nil || again.Name != "nobody") {
		t.Errorf("by number: %+v, %v", again, err)
	}
}

// What files are for the user holds inside of act, in its thread alone, and is over
// afterwards, also after a panic.
func TestAct(t *testing.T) {
	u := nobody(t)
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := errors.Join(os.Chmod(dir, 0o777), os.WriteFile(secret, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	read := func() error { _, err := os.ReadFile(secret); return err }
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if err := u.act(read); !errors.Is(err, fs.ErrPermission) {
				t.Errorf("as the user: %v", err)
			}
		})
		group.Go(func() {
			if err := read(); err != nil {
				t.Errorf("beside it: %v", err)
			}
		})
	}
	group.Wait()
	func() {
		defer func() { recover() }()
		u.act(func() error { panic("in the middle") })
	}()
	if err := read(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if now, err := unix.Getgroups(); err != nil || len(now) != len(u.own) {
		t.Errorf("groups %v, %v, before %v", now, err, u.own)
	}
}

func TestMayWriteAndGive(t *testing.T) {
	u := nobody(t)
	dir := filepath.Join(t.TempDir(), "closed") // and nobody may come here
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	link := dir + "-link"
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if u.MayWrite(dir) || u.MayWrite(dir+"/none") || u.Owns(dir) {
		t.Error("it may write before it was given anything")
	}
	if err := u.Give(link); err == nil || u.Owns(dir) {
		t.Errorf("a link was followed: %v", err)
	}
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := u.Give(filepath.Join(link, "sub")); err == nil || u.Owns(sub) {
		t.Errorf("a link on the way was followed: %v", err)
	}
	if err := u.Give(dir); err != nil || !u.Owns(dir) || u.Owns(link) || !u.MayWrite(dir) {
		t.Errorf("given: %v", err)
	}
	if err := os.Chown(dir, 1, 1); err != nil {
		t.Fatal(err)
	}
	if err := u.Give(dir); err != nil || u.Owns(dir) {
		t.Errorf("another user's directory was given away: %v", err)
	}
}
