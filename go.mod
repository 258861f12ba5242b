module github.com/gasupervisor/gasupervisor

go 1.26.8
