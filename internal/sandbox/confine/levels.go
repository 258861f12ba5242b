package confine

// Level is how far commands can be confined.
type Level string

// The levels. See the package comment.
const (
	Full     Level = "full"
	Landlock Level = "landlock"
	Seatbelt Level = "seatbelt"
	None     Level = "none"
)

// Limits bound one command with all its processes; 0 is no limit. They hold for
// root as well, and therefore are not left to rlimits alone: the helper watches
// memory, processes and disks itself, and where the daemon was given a cgroup of
// its own the kernel does so too.
type Limits struct {
	// Memory is in bytes: what the processes have to themselves, and what they
	// share in memory.
	Memory int64 `json:"memory"`
	// Processes is how many there may be at once; threads count where the kernel
	// counts, and not where the helper does.
	Processes int `json:"processes"`
	// FileSize is how big a file may become that a command writes, in bytes.
	FileSize int64 `json:"file_size"`
	// Disk is how many bytes the free space of a file system that the command may
	// write on may fall while it runs, whoever writes.
	Disk int64 `json:"disk"`
	// DiskReserve is how many bytes have to stay free there.
	DiskReserve int64 `json:"disk_reserve"`
	// OpenFiles is how many files a process may have open.
	OpenFiles int `json:"open_files"`
}

// Network is what a command reaches.
type Network string

// The networks.
const (
	// NetworkOff: nothing but itself.
	NetworkOff Network = "off"
	// NetworkProxy: what the daemon's proxy lets through.
	NetworkProxy Network = "proxy"
	// NetworkAll: what the daemon reaches.
	NetworkAll Network = "all"
)

// StepError says which step of confining a command failed.
type StepError struct {
	Step string
	Err  error
}

func (e *StepError) Error() string { return e.Step + ": " + e.Err.Error() }

func (e *StepError) Unwrap() error { return e.Err }
