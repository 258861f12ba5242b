package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// episode is one world: directories, a model, supervisors, a daemon that goes
// down again and again, and what is to be said about it afterwards.
type episode struct {
	cfg    options
	binary binary
	kind   kind
	seed   uint64
	kills  int
	tasks  int
	until  time.Time // no kill after that; zero is never
	dice   *rand.Rand

	dir, temp, state, ledger, config string
	// disks are the file systems made for this episode.
	disks []*disk
	// power is held for reading by whoever uses temp or state.
	power sync.RWMutex
	// patience is how long a task may take to come to rest once all is calm.
	patience time.Duration

	server *llmtest.Server
	model  *model
	book   book
	log    *os.File
	// calmed is closed when nothing goes wrong any more.
	calmed chan struct{}

	hits   map[string]int
	counts tally
	seen   map[string]bool // outputs whose marker was seen, by path and time
}

func newEpisode(c options, b binary, k kind, seed uint64, dir string) *episode {
	e := &episode{
		cfg: c, binary: b, kind: k, seed: seed, kills: k.kills, tasks: c.Tasks,
		dice:     rand.New(rand.NewPCG(seed, 1)),
		dir:      filepath.Join(dir, fmt.Sprintf("%s-%d", k.name, seed)),
		patience: 90 * time.Second,
		calmed:   make(chan struct{}),
		seen:     map[string]bool{},
	}
	if k.tasks > 0 {
		e.tasks = min(e.tasks, k.tasks)
	}
	e.temp, e.state = filepath.Join(e.dir, "temp"), filepath.Join(e.dir, "state")
	e.ledger, e.config = filepath.Join(e.dir, "ledger"), filepath.Join(e.dir, "config.toml")
	return e
}

func (e *episode) losesPower() bool { return e.kind.name == "power" }

// calm reports whether the torment is over.
func (e *episode) calm() bool {
	select {
	case <-e.calmed:
		return true
	default:
		return false
	}
}

// run lives the episode and returns what was violated.
func (e *episode) run(ctx context.Context, hits map[string]int) (tally, []string, error) {
	e.hits = hits
	if err := e.build(); err != nil {
		return e.counts, nil, err
	}
	defer e.takeDown()
	watchCtx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { e.watchMarkers(watchCtx) })
	var err error
	if e.kind.name == "pickup" {
		err = e.pickup(ctx)
	} else {
		err = e.torture(ctx)
	}
	stop()
	watching.Wait()
	if err != nil {
		return e.counts, nil, err
	}
	e.checkRest(ctx)
	e.check()
	return e.counts, e.book.broken, nil
}

// build makes the world.
func (e *episode) build() error {
	if err := os.Mkdir(e.dir, 0o755); err != nil {
		return err
	}
	if err := e.makeDisks(); err != nil {
		return err
	}
	for _, dir := range []string{e.temp, e.state} {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	// Most commands run confined, as they do for everybody: within temp. Where that
	// loses what was not synced, or has no room, the ledger must not.
	sandbox := "auto"
	if e.kind.name == "power" || e.kind.name == "full-temp" || e.seed%4 == 3 {
		sandbox = "off"
	} else {
		e.ledger = filepath.Join(e.temp, ".ledger")
	}
	e.model = newModel(e.seed, e.ledger)
	e.model.quick = e.kind.name == "pickup"
	var opts []llmtest.Option
	if e.model.quick {
		opts = append(opts, llmtest.Forget())
	}
	var err error
	if e.server, err = llmtest.Start(e.model.answer, opts...); err != nil {
		return err
	}
	if e.log, err = os.Create(filepath.Join(e.dir, "daemon.log")); err != nil {
		return err
	}
	places := []int{4, 8, 32}[e.dice.IntN(3)]
	wait := []string{"10m", "3s"}[e.dice.IntN(2)]
	text := fmt.Sprintf(`temp_dir = %q
state_dir = %q
max_running = %d
reply_timeout = %q
stop_timeout = "5s"

[[llm]]
name = "scripted"
base_url = %q
api_key_env = ""
model = "test"
context_window = 10000000
max_concurrent = 32

[sandbox]
mode = %q

[log]
level = "info"
`, e.temp, e.state, places, wait, e.server.URL, sandbox)
	return os.WriteFile(e.config, []byte(text), 0o644)
}

func (e *episode) makeDisks() error {
	make1 := func(power bool, names ...string) error {
		for _, name := range names {
			d, err := newDisk(e.dir, name, power)
			if err != nil {
				return err
			}
			e.disks = append(e.disks, d)
		}
		return nil
	}
	switch e.kind.name {
	case "full":
		return make1(false, "state")
	case "full-temp":
		return make1(false, "temp")
	case "power":
		// On one file system, or on two that fail together.
		if e.seed%2 == 0 {
			return make1(true, "temp", "state")
		}
		if err := make1(true, "disk"); err != nil {
			return err
		}
		e.temp, e.state = filepath.Join(e.dir, "disk", "temp"), filepath.Join(e.dir, "disk", "state")
		for _, dir := range []string{e.temp, e.state} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
		}
		return syncDir(filepath.Join(e.dir, "disk"))
	}
	return nil
}

func (e *episode) takeDown() {
	if e.server != nil {
		e.server.Close()
	}
	if e.log != nil {
		e.log.Close()
	}
	for _, d := range e.disks {
		if len(e.book.broken) > 0 {
			// What was violated is looked into later, without the mount.
			keep := filepath.Join(e.dir, "kept-"+filepath.Base(d.at))
			_ = os.CopyFS(keep, os.DirFS(d.at))
		}
		if err := d.close(); err != nil {
			fmt.Fprintln(e.cfg.Out, err)
		}
	}
}

// torture lets supervisors work while the daemon is taken down, and then brings
// everything to its end.
func (e *episode) torture(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var drivers sync.WaitGroup
	finished := make(chan struct{})
	for i := range e.tasks {
		name := fmt.Sprintf("t%d", i)
		d := &driver{e: e, name: name, dir: filepath.Join(e.temp, name), dice: rand.New(rand.NewPCG(e.seed, uint64(100+i)))}
		drivers.Go(func() {
			if err := d.work(ctx); err != nil && ctx.Err() == nil {
				e.book.violated(err.Error() + d.describe())
			}
		})
	}
	for i := range removedTasks {
		d := newRemover(e, i)
		drivers.Go(func() {
			if err := d.work(ctx); err != nil && ctx.Err() == nil {
				e.book.violated(err.Error())
			}
		})
	}
	go func() {
		drivers.Wait()
		close(finished)
	}()
	for n := 0; n < e.kills && ctx.Err() == nil && !e.late(); n++ {
		if err := e.torment(ctx); err != nil {
			return err
		}
	}
	close(e.calmed)
	d, err := e.start(nil)
	if err != nil {
		return err
	}
	// What is left is bounded by the drivers' own patience.
	for done := false; !done; {
		select {
		case <-finished:
			done = true
		case <-ctx.Done():
			done = true
		case <-d.exited:
			_, _, code := d.how()
			e.book.violated(fmt.Sprintf("the daemon ended by itself with exit code %d: %s", code, d.log.lastLine()))
			if d, err = e.start(nil); err != nil {
				return err
			}
		}
	}
	e.end(d)
	return ctx.Err()
}

func (e *episode) late() bool { return !e.until.IsZero() && time.Now().After(e.until) }

// torment is one life of the daemon.
func (e *episode) torment(ctx context.Context) error {
	var env []string
	wait := time.Duration(20+e.dice.IntN(600)) * time.Millisecond
	switch p := e.dice.IntN(100); {
	case p < 45 || e.losesPower() && p < 80:
		point, n := e.nextPoint(), 1
		if e.hits[point] > 0 {
			n += e.dice.IntN(1 + e.dice.IntN(12))
		}
		env = append(env, fmt.Sprintf("GASUPERVISOR_INTERNAL_CRASH=%s:%d", point, n))
		wait = 1200 * time.Millisecond
	case p < 60:
		env = append(env, fmt.Sprintf("GASUPERVISOR_INTERNAL_CRASH=random:%d:%g", e.dice.Uint64(), 0.002+0.02*e.dice.Float64()))
		wait = 1200 * time.Millisecond
	}
	if e.kind.name == "failing" {
		name := []string{"journal.write", "journal.sync", "output.write", "atomicfile.write", "*"}[e.dice.IntN(5)]
		env = append(env, fmt.Sprintf("GASUPERVISOR_INTERNAL_FAIL=%s:%d:%g", name, e.dice.Uint64(), 0.3*e.dice.Float64()))
		wait += 500 * time.Millisecond
	}
	d, err := e.start(env)
	if err != nil {
		return err
	}
	if e.kind.name == "full" || e.kind.name == "full-temp" {
		if err := e.fill(ctx, d); err != nil {
			d.kill()
			return err
		}
	}
	select {
	case <-d.exited:
	case <-time.After(wait):
	case <-ctx.Done():
	}
	if !e.losesPower() && e.dice.IntN(10) == 0 {
		e.end(d)
		e.counts.Stops++
		return nil
	}
	d.kill()
	e.buried(d)
	e.counts.Kills++
	if !e.losesPower() && e.dice.IntN(4) == 0 {
		e.tear()
	}
	if e.losesPower() {
		e.power.Lock()
		defer e.power.Unlock()
		for _, disk := range e.disks {
			if err := disk.failPower(); err != nil {
				return err
			}
		}
		e.counts.Powers++
	}
	return nil
}

// tear adds to some journals what a commit leaves that a crash has cut short: the
// beginning of a line, or the zeros of a file that grew before its content came.
func (e *episode) tear() {
	paths, _ := filepath.Glob(filepath.Join(e.state, "*", "session.jsonl"))
	for _, path := range paths {
		if e.dice.IntN(3) > 0 {
			continue
		}
		torn := []string{
			"4", `57 1c0ffee5 {"at":"2026-01-01T00:00:00Z","resumed":{`, strings.Repeat("\x00", 1+e.dice.IntN(200)),
			"6 00000000 {\"a\":1}\n", // whole, with another checksum
		}[e.dice.IntN(4)]
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			continue
		}
		_, err = f.WriteString(torn)
		if err := closeFile(f, err, false); err != nil && e.disks == nil {
			e.book.violated(err.Error())
		}
	}
}

// nextPoint is the fault point that has been reached least.
func (e *episode) nextPoint() string {
	points := slices.Clone(e.binary.points)
	e.dice.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	return slices.MinFunc(points, func(a, b string) int { return e.tried(a) - e.tried(b) })
}

// tried also counts attempts that came to nothing, or a point that is never
// reached would be tried for ever.
func (e *episode) tried(point string) int { return e.hits[point] + e.hits["tried "+point] }

// fill fills the disk and makes room again, while the daemon works.
func (e *episode) fill(ctx context.Context, d *daemon) error {
	for range 1 + e.dice.IntN(2) {
		for _, disk := range e.disks {
			if err := disk.fillUp(); err != nil {
				return err
			}
		}
		e.counts.Fulls++
		select {
		case <-time.After(time.Duration(50+e.dice.IntN(700)) * time.Millisecond):
		case <-d.exited:
		case <-ctx.Done():
		}
		for _, disk := range e.disks {
			if err := disk.empty(); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		select {
		case <-time.After(time.Duration(50+e.dice.IntN(500)) * time.Millisecond):
		case <-d.exited:
		case <-ctx.Done():
		}
	}
	return nil
}

// start starts the daemon. One that was killed may hold its locks for a moment.
func (e *episode) start(env []string) (*daemon, error) {
	for _, v := range env {
		if point, ok := strings.CutPrefix(v, "GASUPERVISOR_INTERNAL_CRASH="); ok && !strings.HasPrefix(point, "random:") {
			name, _, _ := strings.Cut(point, ":")
			e.hits["tried "+name]++
		}
	}
	fmt.Fprintf(e.log, "---- start %s\n", strings.Join(env, " "))
	return start(e.binary, e.config, e.log, env...)
}

// buried looks at how a daemon ended.
func (e *episode) buried(d *daemon) {
	point, killed, code := d.how()
	if point != "" {
		e.counts.Crashes++
		e.hits[point]++
	}
	if !killed {
		fmt.Fprintf(e.log, "---- exit code %d\n", code)
		// A daemon may refuse to start where nothing can be written, or where the one
		// before it still holds a lock; it may not end once it runs.
		e.counts.Kills--
		if d.log.wasQuit() {
			return
		}
		if time.Since(d.begun) > time.Second && e.disks == nil || code == 2 {
			e.book.violated(fmt.Sprintf("the daemon ended by itself with exit code %d: %s", code, d.log.lastLine()))
		} else {
			time.Sleep(20 * time.Millisecond)
		}
	}
	e.autopsy(d)
}

// autopsy looks at what a daemon has left behind.
func (e *episode) autopsy(d *daemon) {
	if d.outlived {
		e.book.violated(fmt.Sprintf("something of the daemon (process %d) lives on %s after its death", d.cmd.Process.Pid, deathPatience))
	}
	for _, line := range d.log.suspicious() {
		e.book.violated("the log says: " + line)
	}
}

// end stops the daemon in good order.
func (e *episode) end(d *daemon) {
	select {
	case <-d.exited:
		return
	default:
	}
	took, killed := d.stop()
	if killed || took > 8*time.Second {
		e.book.violated(fmt.Sprintf("the daemon took %s to stop, with a stop_timeout of 5 s", took.Round(time.Millisecond)))
	}
	e.autopsy(d)
}

// watchMarkers looks at all outputs and, where one has its marker, at the journal,
// which has to know by then that the round is over.
func (e *episode) watchMarkers(ctx context.Context) {
	for ctx.Err() == nil {
		for _, task := range e.allTasks() {
			e.lookForMarkers(task)
		}
		select {
		case <-ctx.Done():
		case <-time.After(40 * time.Millisecond):
		}
	}
}

// allTasks names the tasks that supervisors began, and the subagents that these have
// sent out.
func (e *episode) allTasks() []string {
	names := make([]string, e.tasks)
	for i := range names {
		names[i] = fmt.Sprintf("t%d", i)
	}
	e.power.RLock()
	defer e.power.RUnlock()
	children, _ := filepath.Glob(filepath.Join(e.temp, "t*.*"))
	for _, path := range children {
		names = append(names, filepath.Base(path))
	}
	return names
}

func (e *episode) lookForMarkers(task string) {
	e.power.RLock()
	defer e.power.RUnlock()
	outputs, _ := filepath.Glob(filepath.Join(e.temp, task, "output*.txt"))
	for _, path := range outputs {
		before, err := os.Lstat(path)
		if err != nil {
			continue
		}
		key := path + before.ModTime().String()
		if e.seen[key] {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil || !taskdir.EndsInMarker(data) {
			continue
		}
		l, err := current(e.state, task)
		if err != nil {
			e.book.violated(fmt.Sprintf("task %s: its journal cannot be read: %v", task, err))
			continue
		}
		// Where the output has moved meanwhile, the journal is another session's.
		if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
			continue
		}
		e.seen[key] = true
		e.counts.Markers++
		round := outputRound(path)
		if l == nil || !l.closed(round) {
			e.book.violated(fmt.Sprintf("task %s: %s had its marker before the journal knew that round %d was over", task, filepath.Base(path), round))
			continue
		}
		e.book.saw(marked{task, l.session, round})
	}
}

func outputRound(path string) int {
	name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "output"), ".txt")
	n := 0
	fmt.Sscanf(name, "%d", &n)
	return n
}

// describe is what a task looks like to someone who has to find out why it hangs.
func (d *driver) describe() string {
	child := d.atWork()
	d.e.power.RLock()
	defer d.e.power.RUnlock()
	var b strings.Builder
	entries, _ := os.ReadDir(d.dir)
	for _, entry := range entries {
		size := int64(-1)
		if info, err := entry.Info(); err == nil {
			size = info.Size()
		}
		fmt.Fprintf(&b, " %s(%d)", entry.Name(), size)
	}
	if s, err := taskdir.ReadStatus(d.dir); err == nil {
		fmt.Fprintf(&b, "; status %s %s session %d round %d", s.State, s.Reason, s.Session, s.Round)
	}
	if child != "" {
		fmt.Fprintf(&b, "; at work: %s", child)
	}
	return "; files:" + b.String()
}
