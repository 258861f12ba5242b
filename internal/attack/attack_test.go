//go:build linux

package attack

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// binary is the program under test, probe the one that is let loose inside.
var binary, probe string

// table is where the rows are written to, for scripts/attack.
var table = flag.String("table", "", "append the rows of the table to this `FILE`")

// someone is an ordinary user's id, which need not be known to the system.
const someone = 61234

// asUser says that this is the process that attacks as an ordinary user.
const asUser = "GASUPERVISOR_ATTACK_PROGRAMS"

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	flag.Parse()
	if dir := os.Getenv(asUser); dir != "" {
		binary, probe = filepath.Join(dir, "gasupervisor"), filepath.Join(dir, "probe")
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "gasupervisor-attack-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	os.Chmod(dir, 0o755)
	binary, probe = filepath.Join(dir, "gasupervisor"), filepath.Join(dir, "probe")
	for out, pkg := range map[string]string{binary: "../../cmd/gasupervisor", probe: "./testdata/probe"} {
		build := exec.Command("go", "build", "-o", out, pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", pkg, err, text)
			return 1
		}
	}
	return m.Run()
}

// whom names the user, for the table.
func whom() string {
	if os.Geteuid() == 0 {
		return "root"
	}
	return "user"
}

// TestAsUser runs all the others again, as an ordinary user.
func TestAsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is one already")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(binary)
	// The test's own program lies where only this user can read it.
	copied := filepath.Join(dir, "attack.test")
	if out, err := exec.Command("cp", exe, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	temp, err := os.MkdirTemp("", "gasupervisor-attack-user-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(temp)
	if err := os.Chown(temp, someone, someone); err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.v=" + fmt.Sprint(testing.Verbose()), "-test.timeout=20m", "-test.skip=^TestAsUser$", "-table=" + *table}
	if run := flag.Lookup("test.run").Value.String(); run != "" && run != "TestAsUser" && run != "^TestAsUser$" {
		args = append(args, "-test.run="+run)
	}
	cmd := exec.Command(copied, args...)
	cmd.Dir = "/"
	cmd.Env = []string{asUser + "=" + dir, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + temp, "TMPDIR=" + temp}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: someone, Gid: someone}, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	} else if testing.Verbose() {
		t.Logf("%s", out)
	}
}

// attack is one row.
type attack struct {
	name string
	// line is the shell's; or tools are called in turn.
	line  string
	tools []tool
	// wants is what a failed attempt says, a regular expression; each of several
	// attempts in a row says THROUGH where it worked.
	wants string
	// expected is that in words.
	expected string
	// check, where not nil, looks for more, and says what is wrong.
	check func(p *place) string
}

// row writes a row of the table.
func row(t *testing.T, name, expected, seen string) {
	t.Helper()
	if *table == "" {
		return
	}
	f, err := os.OpenFile(*table, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	outcome := "held"
	if t.Failed() {
		outcome = "THROUGH"
	}
	one := func(s string) string {
		s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
		if len(s) > 110 {
			s = strings.ToValidUTF8(s[:107], "") + "..."
		}
		return s
	}
	fmt.Fprintf(f, "%s\t%s\t%s\t%s\t%s\n", whom(), one(name), one(expected), outcome, one(seen))
}

// try runs attacks against a place, each in a task of its own.
func try(t *testing.T, p *place, attacks []attack) {
	for _, a := range attacks {
		t.Run(strings.NewReplacer(" ", "_", "/", "|").Replace(a.name), func(t *testing.T) {
			outer := p.t
			p.t = t
			defer func() { p.t = outer }()
			calls := a.tools
			if a.line != "" {
				line := strings.NewReplacer("@DIR@", p.dir, "@TCP@", p.tcp, "@UDP@", p.udp, "@UNIX@", p.unix, "@ABSTRACT@", p.abstract,
					"@PID@", fmt.Sprint(p.daemon.Process.Pid)).Replace(a.line)
				calls = []tool{command(line)}
			}
			results := p.run(calls...)
			if len(results) < len(calls) {
				t.Errorf("only %d of %d calls came to an end", len(results), len(calls))
			}
			judge(t, p, a, results)
		})
	}
}

// last is the last line that says something.
func last(seen string) string {
	lines := strings.Split(strings.TrimSpace(seen), "\n")
	if len(lines) == 1 {
		return lines[0]
	}
	return lines[0] + " | " + lines[len(lines)-1]
}

// judge says whether an attack was held off.
func judge(t *testing.T, p *place, a attack, results []string) {
	t.Helper()
	seen := ""
	for _, r := range results {
		seen += r + "\n"
	}
	if strings.Contains(seen, "THROUGH") {
		t.Errorf("it got through:\n%s", seen)
	}
	if strings.Contains(seen, canary) {
		t.Errorf("a secret came out:\n%s", seen)
	}
	if !regexp.MustCompile(a.wants).MatchString(seen) {
		t.Errorf("nothing says %q, so perhaps it was not tried:\n%s", a.wants, seen)
	}
	if c := p.changed(); c != "" {
		t.Errorf("something changed: %s", c)
		p.before = p.snapshot()
	}
	if a.check != nil {
		if bad := a.check(p); bad != "" {
			t.Error(bad)
		}
	}
	if len(p.ended) > 0 {
		t.Fatal("the daemon has ended")
	}
	row(t, a.name, a.expected, last(seen))
}
