package session

import (
	"fmt"
	"slices"
	"testing"
)

// step is what Step is expected to answer; a nil pointer in the table marks a
// happening that cannot occur in a state.
type step struct {
	next State
	do   []Action
}

func stays(s State) *step { return &step{next: s} }

func TestStepOverEveryPair(t *testing.T) {
	table := map[State][happenings]*step{
		Idle: {
			InputArrived:  {Queued, []Action{SetAside, OpenSession, Enqueue}},
			StopArrived:   stays(Idle),
			FilesArrived:  stays(Idle),
			DirectoryGone: stays(Idle), DeadlinePassed: stays(Idle),
		},
		Queued: {
			InputArrived:   {Queued, []Action{LeaveQueue, SetAside, OpenSession, Enqueue}},
			StopArrived:    {Awaiting, []Action{LeaveQueue, CloseUnrun, AwaitReply}},
			FilesArrived:   stays(Queued),
			PlaceGranted:   {Running, []Action{StartRunner}},
			DeadlinePassed: stays(Queued),
			DirectoryGone:  {Ended, []Action{LeaveQueue, EndGone}},
		},
		Running: {
			InputArrived:   {Replacing, []Action{SetAside, CancelReplace}},
			StopArrived:    {Stopping, []Action{CancelStop}},
			FilesArrived:   {Restarting, []Action{CancelRestart}},
			RoundOver:      {Awaiting, []Action{CloseRound, FreePlace, AwaitReply}},
			DeadlinePassed: stays(Running),
			DirectoryGone:  {Leaving, []Action{CancelLeave}},
		},
		Stopping: {
			InputArrived:   {Replacing, []Action{SetAside, CancelReplace}},
			StopArrived:    stays(Stopping),
			FilesArrived:   stays(Stopping),
			RoundOver:      {Awaiting, []Action{CloseRound, FreePlace, AwaitReply}},
			DeadlinePassed: stays(Stopping),
			DirectoryGone:  {Leaving, []Action{CancelLeave}},
		},
		Replacing: {
			InputArrived:   stays(Replacing),
			StopArrived:    stays(Replacing),
			FilesArrived:   stays(Replacing),
			RoundOver:      {Queued, []Action{CloseRound, FreePlace, OpenSession, Enqueue}},
			DeadlinePassed: stays(Replacing),
			DirectoryGone:  {Leaving, []Action{CancelLeave}},
		},
		Restarting: {
			InputArrived:   {Replacing, []Action{SetAside, CancelReplace}},
			StopArrived:    {Stopping, []Action{CancelStop}},
			FilesArrived:   stays(Restarting),
			RoundOver:      {Running, []Action{StartRunner}},
			DeadlinePassed: stays(Restarting),
			DirectoryGone:  {Leaving, []Action{CancelLeave}},
		},
		Leaving: {
			InputArrived:   stays(Leaving),
			StopArrived:    stays(Leaving),
			FilesArrived:   stays(Leaving),
			RoundOver:      {Ended, []Action{FreePlace, EndGone}},
			DeadlinePassed: stays(Leaving),
			DirectoryGone:  stays(Leaving),
		},
		Awaiting: {
			InputArrived:   {Queued, []Action{SetAside, OpenSession, Enqueue}},
			MessageArrived: {Queued, []Action{OpenRound, Enqueue}},
			StopArrived:    {Ended, []Action{EndStopped}},
			FilesArrived:   stays(Awaiting),
			DeadlinePassed: {Ended, []Action{EndTimeout}},
			DirectoryGone:  {Ended, []Action{EndGone}},
		},
		Ended: {
			InputArrived:   {Queued, []Action{SetAside, OpenSession, Enqueue}},
			MessageArrived: {Queued, []Action{OpenRound, Enqueue}},
			StopArrived:    stays(Ended),
			FilesArrived:   stays(Ended),
			DeadlinePassed: stays(Ended),
			DirectoryGone:  {Ended, []Action{EndGone}},
		},
	}
	if len(table) != states {
		t.Fatalf("the table has %d states, the machine %d", len(table), states)
	}
	for s, row := range table {
		for h := range Happening(happenings) {
			t.Run(fmt.Sprintf("%s, %s", s, h), func(t *testing.T) {
				next, do, ok := Step(s, h)
				want := row[h]
				if want == nil {
					if ok || next != s || len(do) != 0 {
						t.Fatalf("got %s %v ok=%v, want it refused with the state unchanged", next, do, ok)
					}
					return
				}
				if !ok || next != want.next || !slices.Equal(do, want.do) {
					t.Errorf("got %s %v ok=%v, want %s %v", next, do, ok, want.next, want.do)
				}
			})
		}
	}
}

// A place that was granted is given back on every way out of a round.
func TestPlacesAreGivenBack(t *testing.T) {
	for s := range State(states) {
		if !s.hasRunner() {
			continue
		}
		next, do, ok := Step(s, RoundOver)
		if !ok {
			t.Errorf("%s: a round cannot end", s)
		}
		if !next.hasRunner() && !slices.Contains(do, FreePlace) {
			t.Errorf("%s: the round ends without giving its place back: %v", s, do)
		}
	}
}
