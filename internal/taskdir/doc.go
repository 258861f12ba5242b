// Package taskdir knows the protocol of a task directory: its file names, when
// a file counts as written, how a message is taken exactly once, and how output
// is shown. Everything else in the daemon speaks of inputs, messages, outputs
// and statuses, and leaves the files to this package.
//
// # A directory is the interface
//
// A task is a directory. Whoever writes input.txt there starts an agent on it;
// the agent's words grow in output.txt, and the line [ROUND END] says that the
// round is over and will not change any more. A reply.txt starts the next round,
// whose words go to output1.txt, then output2.txt. Three more files steer: _stop
// (empty will do), _keyinfo (something to keep in mind from now on) and
// _intervene (something to act on next). Two more, written beside input.txt,
// prepare: context.json with settings, _history.json with a conversation to
// start from. For programs there are status.json, events.jsonl, result.json and
// history.json, all written by the daemon.
//
// The other side is any program that can write a file: a shell, cron, an editor,
// a script in any language, another agent. It does not know that it takes part
// in a protocol. It does not lock, may write slowly, may write twice, may append
// while we look, and may be killed in the middle. Most of this package follows
// from that.
//
// # Looking
//
// File events are hints: they say that it is worth looking, nothing more. The
// truth is the directory. Dir.Look lists it once and says what of the protocol is
// there (Sight), reading no file. A look is cheap enough to be taken after every
// event, and a look that finds nothing new leads to nothing.
//
// # Whole or not yet
//
// A file that exists is not yet a file that has been written. "echo hi >f" makes
// it empty first and fills it later; a slow producer fills it for minutes. So a
// file is read once nobody has it open for writing. Linux can tell: a process
// that asks for a read lease is refused as long as there is a writer. The lease
// is given back at once, since holding it would make the next writer wait: it is
// asked for only to learn the answer, before and after reading. Only file
// systems on this machine know all writers, so elsewhere (network file systems,
// overlays, FUSE, other systems, files of other users) a file counts as whole
// once its size and time have stood still for a while, 250 ms if not set
// otherwise. Dir.Read reports a file that is not whole as ErrNotWhole and says
// when to try again.
//
// input.txt, context.json and _history.json are read like this where they lie
// (Dir.InPlace), and stay. An empty file is no message yet.
//
// # Taking
//
// reply.txt, _stop, _keyinfo and _intervene are messages: each is acted on once,
// whatever dies in between, the daemon included, and nothing that a writer
// appends may be lost. Reading and then deleting would do neither. So a message
// is taken in five steps, of which the journal, and with it the third and
// fourth, belongs to the caller:
//
//  1. Dir.Take renames the file to .taken-<seq>-<name> in the same directory.
//     Whoever opens reply.txt from now on makes a new one, which is a new message.
//     Whoever has it open still writes to the renamed one.
//  2. Dir.Read returns the text and a fingerprint once the file is whole.
//  3. Both go to the journal, synced. The message is now the daemon's.
//  4. It is acted on.
//  5. Dir.Drop deletes the file a second later, if the fingerprint still holds.
//
// The second in the last step is for a writer that had looked up the name just
// before the rename and opened the file just after it was found whole. What it
// added is a message too: Drop then deletes nothing and returns a Pending for
// the addition. The same can be asked for without deleting by Dir.Grown, which a
// caller does for files not yet dropped once it has read a later one, so that
// the lines of one writer keep their order.
//
// After a restart a .taken- file that the journal knows is at step five, any
// other at step two (Dir.Resume); where additions were read, the journal's last
// fingerprint of the file counts. After a power failure the rename may be undone
// while the journal's record is not: the caller recognises such a file by its
// fingerprint. All seq numbers of a directory differ; a caller goes on above
// the highest that its journal or Sight.Taken knows.
//
// A _stop is different in two ways: its name alone is the message, so nobody
// waits for its writer, and whatever is added to it later is no second stop.
//
// # Showing
//
// An Output is the file of one round. It is appended to and never rewritten:
// nothing that was shown is taken back. Readers search it for the marker, so no
// text of a model or a tool may contain what only looks like one; and a terminal
// shows it, so no text may contain control characters. Both are made visible on
// the way, and however the text is split into pieces, the file is the same.
//
// status.json, history.json, result.json and the plan are replaced as a whole,
// so that a reader sees the old one or the new.
//
// # Trusting nobody
//
// An agent can write into its own directory, and what it writes may be planted:
// a link named output.txt that points to somebody's file, a pipe in place of
// reply.txt that blocks whoever opens it, a file of ten gigabytes. Everything is
// opened relative to the handle of the directory, without following links and
// without blocking, and is read only if it is a regular file with one name and
// of a bounded size. What stands in the way of a file to be written is renamed
// aside (.stray-...), never written through and never deleted. The handle also
// tells a directory from another one that took its name later.
//
// # A new input
//
// A session is one life of a task. When input.txt is written anew, the files of
// the earlier session move to old/<n>/ (Dir.Archive), before anybody could take
// an old answer for the new one. The functions with a temp directory as their
// first parameter are the supervisor's side of all this, used by the command
// line: they do nothing that a shell could not do.
package taskdir
