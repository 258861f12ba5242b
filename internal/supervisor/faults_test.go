package supervisor

import (
	"os"

	"github.com/gasupervisor/gasupervisor/internal/journal"
)

// panicking are journals whose writes panic when b says so.
func panicking(b *breakable) []journal.Option {
	return []journal.Option{journal.WithOpener(func(path string) (journal.File, error) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		return panickingFile{f, b}, err
	})}
}

type panickingFile struct {
	*os.File
	b *breakable
}

func (f panickingFile) WriteAt(p []byte, off int64) (int, error) {
	f.b.Write(f.Name())
	return f.File.WriteAt(p, off)
}
