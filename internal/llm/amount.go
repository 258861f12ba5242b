package llm

// Amount is tokens and money, as budgets count them: input and output together.
type Amount struct {
	Tokens  int64   `json:"tokens,omitempty"`
	CostUSD float64 `json:"cost_usd,omitempty"`
}

// Add returns the sum of a and b.
func (a Amount) Add(b Amount) Amount {
	return Amount{Tokens: a.Tokens + b.Tokens, CostUSD: a.CostUSD + b.CostUSD}
}

// Sub returns a less b.
func (a Amount) Sub(b Amount) Amount {
	return Amount{Tokens: a.Tokens - b.Tokens, CostUSD: a.CostUSD - b.CostUSD}
}

// Amount is what u counts in a budget. What was not reported is not part of it.
func (u Usage) Amount() Amount {
	return Amount{Tokens: u.InputTokens + u.OutputTokens, CostUSD: u.CostUSD}
}

// Price is in USD per million tokens. Cached is that of input tokens read from the
// provider's prompt cache; 0 takes Input for them.
type Price struct {
	Input, Cached, Output float64
}

// Cost is the price of these tokens, of which cached are a part of input.
func (p Price) Cost(input, cached, output int64) float64 {
	if p.Cached == 0 {
		p.Cached = p.Input
	}
	return (float64(input-cached)*p.Input + float64(cached)*p.Cached + float64(output)*p.Output) / 1e6
}
