// Package confine keeps the commands of agents to what their policy grants.
//
// A command is not started by the daemon itself but by a helper: the daemon's own
// program, run anew under another name. The helper stays for as long as the
// command runs. It learns what to do from a socket that it inherits, and never
// from arguments or environment, which others can read; when that socket closes,
// because the command is over or the daemon is gone, it ends and takes all of the
// command with it.
//
// # Levels
//
// Full, on Linux with user namespaces: the helper is process 1 of namespaces of
// its own, and builds a root directory that holds nothing but what is granted. In
// order, each step failing the command where it cannot be done:
//
//  1. namespaces for users, mounts, processes, network, ipc, names and cgroups,
//     made with the helper itself;
//  2. a root in memory with the granted paths bound in: nosuid and nodev, read-only
//     where nothing else is granted; what the policy hides is covered, what it
//     protects is read-only also inside of what may be written, and the directories
//     that lead there cannot be moved away;
//  3. a /proc of its own, read-only, a /dev with five devices, then the old root
//     is let go;
//  4. limits (see Limits);
//  5. no capability, in no set, and none to be had again: no_new_privs, an empty
//     bounding set, locked securebits;
//  6. Landlock with all that the kernel's version of it can do: a second fence
//     around the same paths, and no signals or abstract sockets to the outside;
//  7. a seccomp filter, which first looks at the architecture;
//  8. the shell.
//
// Steps 5 to 7 are taken by the one thread that starts the shell, so that the
// helper can go on watching; the helper itself gives its capabilities up, too.
//
// With Config.User, for a process that is root, the helper is that user from its
// first instruction on, with no other groups. Its namespace knows root's id beside the
// user's, so that one capability more, gone with the others, lets it through root's
// directories to what is granted.
//
// Landlock, on Linux without user namespaces: steps 4 to 8, where Landlock is new
// enough, the user is not root, and nothing is protected or hidden within what is
// granted, because Landlock cannot make exceptions. Commands then see other
// processes, though they can neither signal nor inspect them.
//
// Seatbelt, on macOS: a profile for sandbox-exec.
//
// None: commands are refused.
//
// # Division
//
// What a command gets is decided before the helper starts and is plain data:
// Layout is pure. The helper only carries it out, so that what "gasupervisor
// check --policy" prints is what happens.
package confine
