module github.com/gasupervisor/gasupervisor

go 1.26.8

require (
	github.com/BurntSushi/toml v1.6.0
	github.com/google/go-cmp v0.7.0
	golang.org/x/sys v0.50.0
	golang.org/x/text v0.44.0
	mvdan.cc/sh/v3 v3.14.1
)

require (
	github.com/fsnotify/fsnotify v1.10.1 // indirect
	github.com/kardianos/service v1.3.0 // indirect
	golang.org/x/term v0.48.0
)
require github.com/sashabaranov/go-openai v1.43.0
