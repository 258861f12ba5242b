package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gasupervisor/gasupervisor/internal/atomicfile"
)

// placePrefix bounds the readable part of a place, in bytes.
const placePrefix = 48

// Place returns the name of the directory that a task's journal belongs in: what
// a person recognises of the task's name, and a hash that tells all names apart.
//
// Every name gives one path element that is valid on all file systems, and
// distinct names give distinct elements, also where a file system ignores case
// or normalises Unicode: the hash is of the name's bytes. The way back is not
// meant to be had from it; the name is the journal's first record.
func Place(task string) string {
	var b strings.Builder
	gap := false // something was left out since the last character
	for _, r := range task {
		if !isReadable(r) || r == '-' && b.Len() == 0 {
			gap = true
			continue
		}
		if gap && b.Len() > 0 {
			b.WriteByte('_')
		}
		gap = false
		if b.Len()+utf8.RuneLen(r) > placePrefix {
			break
		}
		b.WriteRune(r)
	}
	sum := sha256.Sum256([]byte(task))
	hash := hex.EncodeToString(sum[:16])
	if b.Len() == 0 {
		return hash
	}
	// Not a dot: "nul.x" is a device on Windows, "nul-x" is not.
	return b.String() + "-" + hash
}

func isReadable(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r) || r == '-')
}

// SyncDir makes journals that were renamed within or into the directory keep
// their new names through a power failure.
func SyncDir(dir string) error { return atomicfile.SyncDir(dir) }
