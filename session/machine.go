package session

import "fmt"

// State is where a task stands. Four of the states are the ones that status.json
// shows; the others are a running round on its way out.
type State uint8

// The states of a task.
const (
	// Idle is a task without a session: nothing asked for yet.
	Idle State = iota
	// Queued is a round that waits for its place.
	Queued
	// Running is a round at work.
	Running
	// Stopping is a running round that was told to stop.
	Stopping
	// Replacing is a running round that a new input.txt ends.
	Replacing
	// Restarting is a running round that starts over, with files that arrived
	// before the model's first answer.
	Restarting
	// Leaving is a running round whose directory has gone.
	Leaving
	// Awaiting is a session that waits for a reply.
	Awaiting
	// Ended is a session that is over. A late reply revives it.
	Ended

	states = int(Ended) + 1
)

var stateNames = [states]string{"idle", "queued", "running", "stopping", "replacing", "restarting", "leaving", "awaiting_reply", "ended"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", s)
}

// Public is the state's name in status.json.
func (s State) Public() string {
	if s.hasRunner() {
		return "running"
	}
	return s.String()
}

func (s State) hasRunner() bool { return s >= Running && s <= Leaving }

// Happening is what can happen to a task.
type Happening uint8

// What can happen.
const (
	// InputArrived: a new input.txt has been read whole.
	InputArrived Happening = iota
	// MessageArrived: a reply, or an intervention without a round in progress.
	MessageArrived
	// StopArrived: a _stop that was meant for now.
	StopArrived
	// FilesArrived: context.json or _history.json came before the first answer.
	FilesArrived
	// PlaceGranted: the queue gives the round its place.
	PlaceGranted
	// RoundOver: the runner has returned.
	RoundOver
	// DeadlinePassed: no reply came in time.
	DeadlinePassed
	// DirectoryGone: the task's directory was removed, or is another one now.
	DirectoryGone

	happenings = int(DirectoryGone) + 1
)

var happeningNames = [happenings]string{"input arrived", "message arrived", "stop arrived", "files arrived", "place granted", "round over", "deadline passed", "directory gone"}

func (h Happening) String() string {
	if int(h) < len(happeningNames) {
		return happeningNames[h]
	}
	return fmt.Sprintf("happening(%d)", h)
}

// Action is what the session has to do about it.
type Action uint8

// What a session does, in the order in which Step lists it.
const (
	// SetAside moves the earlier session's files to old/<n>/.
	SetAside Action = iota
	// OpenSession begins a session with the input that arrived.
	OpenSession
	// OpenRound begins a round with the message that arrived.
	OpenRound
	// Enqueue asks for a place; LeaveQueue takes that back.
	Enqueue
	LeaveQueue
	// StartRunner starts the runner, in the place that was granted.
	StartRunner
	// CancelStop, CancelReplace, CancelRestart and CancelLeave cancel the runner,
	// each with its cause.
	CancelStop
	CancelReplace
	CancelRestart
	CancelLeave
	// CloseRound makes the round's end durable and writes the marker. After
	// CloseUnrun a round ends that never ran.
	CloseRound
	CloseUnrun
	// FreePlace gives the place back.
	FreePlace
	// AwaitReply arms the reply deadline.
	AwaitReply
	// EndStopped, EndTimeout end the session; EndGone ends it without touching
	// the directory, and archives the journal.
	EndStopped
	EndTimeout
	EndGone
)

// Step is the whole of a task's life: what follows from a happening in a state.
// It is pure. A happening that means nothing in a state leaves it and asks for
// nothing; ok is false where it cannot occur there at all, which is a defect of
// the caller.
func Step(s State, h Happening) (next State, do []Action, ok bool) {
	switch h {
	case InputArrived:
		switch s {
		case Idle, Awaiting, Ended:
			return Queued, []Action{SetAside, OpenSession, Enqueue}, true
		case Queued:
			return Queued, []Action{LeaveQueue, SetAside, OpenSession, Enqueue}, true
		case Running, Stopping, Restarting:
			return Replacing, []Action{SetAside, CancelReplace}, true
		case Replacing, Leaving:
			return s, nil, true
		}
	case MessageArrived:
		switch s {
		case Awaiting, Ended:
			return Queued, []Action{OpenRound, Enqueue}, true
		}
		return s, nil, false
	case StopArrived:
		switch s {
		case Queued:
			return Awaiting, []Action{LeaveQueue, CloseUnrun, AwaitReply}, true
		case Running, Restarting:
			return Stopping, []Action{CancelStop}, true
		case Awaiting:
			return Ended, []Action{EndStopped}, true
		}
		return s, nil, true
	case FilesArrived:
		if s == Running {
			return Restarting, []Action{CancelRestart}, true
		}
		return s, nil, true
	case PlaceGranted:
		switch s {
		case Queued:
			return Running, []Action{StartRunner}, true
		}
		return s, nil, false
	case RoundOver:
		switch s {
		case Running, Stopping:
			return Awaiting, []Action{CloseRound, FreePlace, AwaitReply}, true
		case Replacing:
			return Queued, []Action{CloseRound, FreePlace, OpenSession, Enqueue}, true
		case Restarting:
			return Running, []Action{StartRunner}, true
		case Leaving:
			return Ended, []Action{FreePlace, EndGone}, true
		}
		return s, nil, false
	case DeadlinePassed:
		if s == Awaiting {
			return Ended, []Action{EndTimeout}, true
		}
		return s, nil, true
	case DirectoryGone:
		switch s {
		case Idle:
			return Idle, nil, true
		case Queued:
			return Ended, []Action{LeaveQueue, EndGone}, true
		case Awaiting, Ended:
			return Ended, []Action{EndGone}, true
		case Leaving:
			return s, nil, true
		default:
			return Leaving, []Action{CancelLeave}, true
		}
	}
	return s, nil, false
}
