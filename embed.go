// Package gasupervisor holds what ships inside the binary.
package gasupervisor

import "embed"

// DefaultConfig is config.toml as it ships: every key with its default and what
// it is for.
//
//go:embed config.toml
var DefaultConfig string

// Agents are the agent files that ship, below agents/.
//
//go:embed agents/*.md
var Agents embed.FS
