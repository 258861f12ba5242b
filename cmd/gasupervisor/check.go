package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/config"
	"github.com/gasupervisor/gasupervisor/internal/lock"
	"github.com/gasupervisor/gasupervisor/internal/sandbox/confine"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/internal/tool/skill"
)

// finding is one line of check: what was looked at, how it is, and what to do.
type finding struct {
	Level string `json:"level"` // ok, note, warning, problem
	Topic string `json:"topic"`
	Text  string `json:"text"`
	Do    string `json:"do,omitempty"`
}

// The levels.
const (
	levelOK      = "ok"
	levelNote    = "note"
	levelWarning = "warning"
	levelProblem = "problem"
)

// llmTimeout is how long one LLM may take to answer.
const llmTimeout = 10 * time.Second

func (a *app) checkCommand() *cobra.Command {
	var asJSON, offline bool
	var policy, line string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check configuration, LLMs, limits, programs and confinement",
		Long: `Looks at everything that the daemon needs, and says for each thing what to do if it
is not as it should be. It asks each LLM's server for its models, which costs nothing.
Exit code 1: something keeps the daemon from working.

With --policy it prints instead what a context.json lets a task do, and with --run
it runs a command as the task's agent would, and exits with its code.`,
		Example: "  gasupervisor check\n  gasupervisor check --offline --json\n  gasupervisor check --policy temp/audit/context.json\n" +
			"  gasupervisor check --policy temp/audit/context.json --run 'go test ./...'",
		Args: wants(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case policy != "":
				return a.checkPolicy(cmd.Context(), policy, line, asJSON)
			case line != "":
				return usagef("--run wants --policy, which says what the command may do")
			}
			return a.check(cmd.Context(), asJSON, offline)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&policy, "policy", "", "print what this context.json `FILE` lets a task do")
	cmd.Flags().StringVar(&line, "run", "", "run `COMMAND` as an agent with that policy would")
	cmd.Flags().BoolVar(&offline, "offline", false, "do not ask the LLMs' servers")
	return cmd
}

func (a *app) check(ctx context.Context, asJSON, offline bool) error {
	found := []finding{}
	add := func(f ...finding) { found = append(found, f...) }

	l, err := a.loadWith(config.Options{ReadKeys: true})
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			add(finding{levelProblem, "config", strings.TrimSpace(line), "correct it, then check again"})
		}
	} else {
		add(checkConfig(l)...)
		add(checkDirs(l)...)
		for i := range l.Config.LLMs {
			add(checkKey(&l.Config.LLMs[i]))
		}
		if !offline {
			add(checkLLMs(ctx, l)...)
		}
		add(checkWatches("/proc/sys/fs/inotify", countTasks(l.Config.TempDir))...)
		add(checkPrograms(runtime.GOOS, exec.LookPath)...)
		add(checkConfinement(l))
		add(checkAgents(l)...)
	}

	bad := slices.ContainsFunc(found, func(f finding) bool { return f.Level == levelProblem })
	if asJSON {
		if err := a.ui.printJSON(found); err != nil {
			return err
		}
	} else {
		colours := map[string]string{levelOK: green, levelNote: dim, levelWarning: yellow, levelProblem: red}
		for _, f := range found {
			a.ui.printf("%s  %s  %s\n", a.ui.paint(colours[f.Level], pad(f.Level, 7)), pad(f.Topic, 11), show(f.Text))
			if f.Do != "" {
				a.ui.printf("%s  %s  -> %s\n", pad("", 7), pad("", 11), show(f.Do))
			}
		}
	}
	if bad {
		return exitWith(exitFailed)
	}
	return nil
}

func checkConfig(l *config.Loaded) []finding {
	var found []finding
	if l.File == "" {
		found = append(found, finding{levelNote, "config", "no configuration file; defaults in " + l.Dir, "gasupervisor init writes one, or name yours with --config"})
	} else {
		found = append(found, finding{levelOK, "config", fmt.Sprintf("%s (%s)", l.File, l.Why), ""})
	}
	for _, w := range l.Warnings {
		found = append(found, finding{levelWarning, "config", w, ""})
	}
	for _, s := range l.LLMSettings() {
		found = append(found, finding{levelOK, "config", fmt.Sprintf("%s = %s (%s)", s.Key, s.Value, s.Origin), ""})
	}
	return found
}

func checkDirs(l *config.Loaded) []finding {
	var found []finding
	for _, p := range places(&l.Config) {
		found = append(found, checkPlace(p))
	}
	held, err := lock.Probe(l.Config.TempDir)
	switch {
	case err != nil:
		found = append(found, finding{levelProblem, "daemon", err.Error(), "keep temp_dir on a file system with locks, as local disks are"})
	case held:
		text := "running"
		if h, err := lock.ReadHolder(l.Config.StateDir); err == nil && h.TempDir == l.Config.TempDir {
			text += fmt.Sprintf(": %s, version %s", h, h.Version)
		}
		found = append(found, finding{levelOK, "daemon", text, ""})
	default:
		found = append(found, finding{levelNote, "daemon", "not running", "gasupervisor run, or gasupervisor service start"})
	}
	return found
}

func countTasks(tempDir string) int {
	names, err := taskdir.List(tempDir)
	if err != nil {
		return 0
	}
	return len(names)
}

// checkKey says whether there is a key, which is never shown.
func checkKey(e *config.LLM) finding {
	f := finding{Level: levelOK, Topic: "key " + show(e.Name)}
	switch {
	case e.NeedsKey() && e.APIKeyEnv == "":
		f.Level, f.Text = levelProblem, "there is none for "+e.BaseURL
		f.Do = "set api_key_env or api_key_file in its [[llm]] entry"
	case e.NeedsKey():
		f.Level, f.Text = levelProblem, "there is none for "+e.BaseURL
		f.Do = "set " + e.APIKeyEnv + ", or name a file with the key in api_key_file"
	case e.Key == "":
		f.Text = "none; requests are sent without"
	default:
		f.Text = "set, from " + keyPlace(e)
	}
	return f
}

// checkLLMs asks all at once that have the key they need.
func checkLLMs(ctx context.Context, l *config.Loaded) []finding {
	found := make([]finding, len(l.Config.LLMs))
	var group sync.WaitGroup
	for i := range l.Config.LLMs {
		if e := &l.Config.LLMs[i]; !e.NeedsKey() {
			group.Go(func() { found[i] = checkLLM(ctx, e) })
		}
	}
	group.Wait()
	return slices.DeleteFunc(found, func(f finding) bool { return f.Level == "" })
}

// checkLLM asks an LLM's server for its models: the one request that every
// server answers, with the key, without cost.
func checkLLM(ctx context.Context, e *config.LLM) finding {
	f := finding{Level: levelProblem, Topic: "llm " + show(e.Name)}
	ctx, cancel := context.WithTimeout(ctx, llmTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.BaseURL+"/models", nil)
	if err != nil {
		f.Text, f.Do = err.Error(), "correct base_url"
		return f
	}
	if key := e.Key.Reveal(); key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	for k, v := range e.Headers {
		req.Header.Set(k, v)
	}
	// A redirect would carry the headers, which may hold keys, to another server.
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	begun := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		f.Text, f.Do = fmt.Sprintf("%s cannot be reached: %v", e.BaseURL, err), "is the server running, and base_url right? behind a proxy: HTTPS_PROXY"
		return f
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	switch {
	case resp.StatusCode != http.StatusOK:
		return noList(f, e, resp)
	case err != nil:
		f.Level = levelWarning
		f.Text = fmt.Sprintf("%s answers, but its list of models breaks off: %v", e.BaseURL, err)
		f.Do = "try again later; if it stays, look at what is between here and the server"
		return f
	}
	return listed(f, e, body, time.Since(begun))
}

// noList says what an answer without a list of models means.
func noList(f finding, e *config.LLM, resp *http.Response) finding {
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		f.Text = fmt.Sprintf("%s refuses the key (%s)", e.BaseURL, resp.Status)
		f.Do = "correct the key in " + keyPlace(e)
	case code == http.StatusNotFound || code == http.StatusMethodNotAllowed:
		f.Level = levelNote
		f.Text = fmt.Sprintf("%s answers, but lists no models (%s)", e.BaseURL, resp.Status)
		f.Do = "if tasks fail, look at base_url: it should end in the version, as in .../v1"
	case code >= 300 && code < 400:
		f.Text = fmt.Sprintf("%s answers with a redirect to %s", e.BaseURL, resp.Header.Get("Location"))
		f.Do = "give the server's own address as base_url"
	default:
		f.Level = levelWarning
		f.Text = fmt.Sprintf("%s answers %s", e.BaseURL, resp.Status)
		f.Do = "try again later"
	}
	return f
}

// listed says whether the list of models in body has the configured one.
func listed(f finding, e *config.LLM, body []byte, took time.Duration) finding {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		f.Text = fmt.Sprintf("%s answers, but not as a server for OpenAI's API does", e.BaseURL)
		f.Do = "look at base_url: it should end in the version, as in .../v1"
		return f
	}
	ids := make([]string, len(list.Data))
	for i, d := range list.Data {
		ids[i] = d.ID
	}
	f.Level = levelOK
	f.Text = fmt.Sprintf("%s answers in %s, %s is there", e.BaseURL, shortTime(took), e.Model)
	if !slices.Contains(ids, e.Model) && !slices.Contains(ids, e.Model+":latest") {
		f.Level = levelWarning
		f.Text = fmt.Sprintf("%s answers, but does not list the model %s", e.BaseURL, e.Model)
		f.Do = "choose one that it lists, such as " + strings.Join(ids[:min(len(ids), 5)], ", ")
		if len(ids) == 0 {
			f.Do = "load the model into the server"
		}
	}
	return f
}

func keyPlace(e *config.LLM) string {
	if e.APIKeyFile != "" {
		return e.APIKeyFile
	}
	if e.APIKeyEnv != "" {
		return e.APIKeyEnv
	}
	return "its [[llm]] entry (it has none now)"
}

// The least that a daemon with room for a thousand tasks wants, beside what other
// programs of the user have.
const (
	wantWatches   = 8192
	wantInstances = 128
	wantQueue     = 16384
)

// checkWatches looks at the limits for watching directories. Where the system has
// no such files it has no such limits.
func checkWatches(dir string, tasks int) []finding {
	var found []finding
	for _, w := range []struct {
		name string
		want int
		why  string
	}{
		{"max_user_watches", max(wantWatches, 2*tasks), "one for each task, of all programs of the user"},
		{"max_user_instances", wantInstances, "one for each program that watches"},
		{"max_queued_events", wantQueue, "events in a burst"},
	} {
		data, err := os.ReadFile(filepath.Join(dir, w.name))
		if err != nil {
			continue
		}
		var n int
		if _, err := fmt.Sscan(string(data), &n); err != nil {
			continue
		}
		f := finding{levelOK, "watching", fmt.Sprintf("fs.inotify.%s = %d (%s)", w.name, n, w.why), ""}
		if n < w.want {
			f.Level = levelWarning
			f.Do = fmt.Sprintf("sudo sysctl fs.inotify.%s=%d   (to keep it: a line in /etc/sysctl.d/); without it the daemon may have to poll", w.name, w.want)
		}
		found = append(found, f)
	}
	return found
}

// checkAgents says which agents and skills there are, and which files are not
// loaded.
func checkAgents(l *config.Loaded) []finding {
	skills := skill.Load(skillDirs(l))
	agents := agentSources(l, func() *skill.Snapshot { return skills }).Load()
	var found []finding
	for _, b := range brokenRemarks(agents, skills) {
		found = append(found, finding{levelWarning, "agents", "not loaded: " + b.String(), "correct the file; gasupervisor agents check FILE tells whether it is right"})
	}
	warnings := 0
	for _, a := range agents.Agents {
		for _, w := range a.Warnings {
			if w.Once == "" {
				warnings++
			}
		}
	}
	f := finding{Level: levelOK, Topic: "agents", Text: fmt.Sprintf("%d from files, %d skills", len(agents.Agents), len(skills.Skills))}
	if warnings > 0 {
		f.Level = levelNote
		f.Text += fmt.Sprintf("; %d remarks about files", warnings)
		f.Do = "see: gasupervisor agents check"
	}
	return append(found, f)
}

// checkConfinement says how far agents are confined.
func checkConfinement(l *config.Loaded) finding {
	f := finding{Level: levelWarning, Topic: "confinement"}
	if l.Config.Sandbox.Mode != config.SandboxOff {
		return checkLevel(l, f)
	}
	f.Text = "off: commands of agents run with all rights of the daemon's user; file tools reach all that it can, but for the daemon's own files"
	f.Do = "run the daemon as a user, or in a container, that may do no harm; give tasks only to whom you would give a shell"
	if os.Geteuid() == 0 {
		f.Text = "off, and this user is root: " + strings.TrimPrefix(f.Text, "off: ")
	}
	return f
}

// checkLevel tries how far commands can be confined.
func checkLevel(l *config.Loaded, f finding) finding {
	k, err := newConfinement(&l.Config, nil, nil)
	if err == nil {
		err = k.mayWork(&l.Config)
	}
	if err != nil {
		f.Level, f.Text, f.Do = levelProblem, err.Error(), "correct it"
		return f
	}
	st := k.sandbox.Status()
	f.Text, f.Do = st.String(), st.Do
	switch {
	case st.Level == confine.None:
		f.Level = levelProblem
		f.Do += `; or mode = "off" in [sandbox], for agents that you would give a shell`
	case st.Why == "":
		f.Level = levelOK
		if l.Config.Sandbox.Network.All && st.ABI < 6 {
			f.Level, f.Do = levelWarning, "this kernel's Landlock cannot keep commands from abstract sockets of this machine: choose another network than \"all\", or a kernel from 6.12 on"
		}
		if k.user != nil {
			f.Text += fmt.Sprintf("; agents act as user %s (%d:%d)", k.user.Name, k.user.UID, k.user.GID)
		}
		f.Text += "; network " + l.Config.Sandbox.Network.String() + "; " + k.limits
	}
	return f
}
