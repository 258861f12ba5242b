// Package llmtest is a scripted server that speaks OpenAI's chat API over real
// HTTP. Tests, benchmarks and the demo command share it, so that everything
// above the socket is the code that users run.
//
// What the model says is a Script: a function from the parsed Request to a
// Reply. Replies are values built by chaining:
//
//	llmtest.Text("hello")
//	llmtest.Call("read_file", `{"path":"a.txt"}`).Usage(900, 20, 800)
//	llmtest.Text("half an ans").Cut()
//	llmtest.Status(429, "slow down").RetryAfter(time.Second)
//
// Scripts are built from replies: Queue for one task, ByTurn and PerTask for
// many at once, Route to tell tasks apart by their text.
//
// The server is strict by default: a conversation that some provider would
// refuse is answered with status 400 in OpenAI's error form, naming the message.
// So a passing test also says that every request on its way was valid.
//
// The package needs no *testing.T: Start works anywhere, NewServer takes the
// few methods of a test that it uses.
package llmtest
