package main

// checkPrograms says what of agents' work will fail for want of programs. look finds
// one in the search path, as exec.LookPath does; goos is the system.
func checkPrograms(goos string, look func(name string) (string, error)) []finding {
	var found []finding
	if goos != "windows" {
		found = append(found, checkShell(look))
	}
	for _, python := range []string{"python3", "python"} {
		if path, err := look(python); err == nil {
			return append(found, finding{levelOK, "programs", "python is " + path, ""})
		}
	}
	return append(found, finding{levelNote, "programs",
		"there is no python3: commands of agents that call it fail, and scripts/agentmain.py cannot be run",
		"install it if agents are to use it"})
}

// checkShell looks for what runs commands: see package command.
func checkShell(look func(name string) (string, error)) finding {
	if path, err := look("bash"); err == nil {
		return finding{levelOK, "programs", "commands run in " + path, ""}
	}
	path, err := look("sh")
	if err != nil {
		return finding{levelProblem, "programs", "there is neither bash nor sh in the search path: each execute_command fails",
			"install bash, or add its directory to PATH of the daemon"}
	}
	return finding{levelWarning, "programs",
		"there is no bash: commands run in " + path + ", where what only bash knows fails, as [[ ]], arrays and <(...)",
		"install bash"}
}
