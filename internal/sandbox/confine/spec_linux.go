package confine

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// spec is what the helper is told: everything about one command.
type spec struct {
	Level   Level    `json:"level"`
	Probe   bool     `json:"probe,omitempty"` // stop before the shell, and say so
	Mounts  []Mount  `json:"mounts"`
	Links   []link   `json:"links,omitempty"`
	Files   []inline `json:"files,omitempty"`
	Network Network  `json:"network"`
	Limits  Limits   `json:"limits"`
	Shell   string   `json:"shell"`
	Args    []string `json:"args"`
	Env     []string `json:"env"`
	Dir     string   `json:"dir"`
	// Cgroup is the directory of the command's own cgroup, "" where it has none.
	Cgroup string `json:"cgroup,omitempty"`

	// sharedBound says that the shared memory of the namespace was bounded.
	sharedBound bool
}

// link is a symbolic link in the root.
type link struct{ Path, Target string }

// inline is a small file in the root.
type inline struct{ Path, Text string }

// told is what the helper says, one JSON object at a time.
type told struct {
	// Step and Error say what could not be done; then nothing was run.
	Step  string `json:"step,omitempty"`
	Error string `json:"error,omitempty"`
	// Ready says that the shell was started. With a proxy, a listener's
	// descriptor comes with it.
	Ready    bool `json:"ready,omitempty"`
	Landlock int  `json:"landlock,omitempty"` // the version in force
	// Ended comes last.
	Ended bool   `json:"ended,omitempty"`
	Left  int    `json:"left,omitempty"`
	Limit string `json:"limit,omitempty"`
}

// maxSpec bounds what the helper reads.
const maxSpec = 16 << 20

// sendSpec writes s with its length before it.
func sendSpec(w io.Writer, s *spec) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...))
	return err
}

func readSpec(r io.Reader) (*spec, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxSpec {
		return nil, fmt.Errorf("it has %d bytes", n)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, err
	}
	s := &spec{}
	return s, json.Unmarshal(data, s)
}

// watchEvery is how often the limits are looked at.
const watchEvery = 20 * time.Millisecond

// patience is how long the helper may take to say something that is due.
const patience = 10 * time.Second
