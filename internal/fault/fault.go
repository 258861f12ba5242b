// Package fault names the places where a crash is most instructive: between any
// two steps whose order is a promise, such as a journal's write and its sync.
//
// In a normal build Point and Error are empty and cost nothing. Built with the tag
// "faults", they obey two variables of the environment, which scripts/torture
// sets for the daemon that it runs:
//
//	GASUPERVISOR_INTERNAL_CRASH=journal.written:3
//	    the process kills itself at the third passing of that point
//	GASUPERVISOR_INTERNAL_CRASH=random:42:0.01
//	    at every passing of any point, with that probability; 42 is the seed
//	GASUPERVISOR_INTERNAL_FAIL=journal.sync:42:0.1
//	    operations of that name fail with that probability; "" or "*" for all
//
// A process that kills itself does so as kill -9 would, after a line on standard
// error that names the point.
//
// Names have the form area.step, where the step is what has just been done.
package fault
