package llm

import "testing"

func TestModelThresholds(t *testing.T) {
	for _, tc := range []struct {
		name          string
		m             Model
		reserve, from int
	}{
		{"nothing known", Model{}, 4096, 0},
		{"large", Model{ContextWindow: 400_000}, 4096, 300_000},
		{"small", Model{ContextWindow: 4000}, 1000, 3000},
		{"a large reserve counts", Model{ContextWindow: 20_000, ReplyReserve: 8000}, 8000, 12_000},
		{"a reserve that leaves nothing", Model{ContextWindow: 4000, ReplyReserve: 8000}, 2000, 2000},
		{"earlier", Model{ContextWindow: 100_000, CompactAt: 0.5}, 4096, 50_000},
		{"nonsense", Model{ContextWindow: 100_000, CompactAt: 7}, 4096, 75_000},
	} {
		if r, f := tc.m.Reserve(), tc.m.CompactFrom(); r != tc.reserve || f != tc.from {
			t.Errorf("%s: reserve %d, from %d; want %d and %d", tc.name, r, f, tc.reserve, tc.from)
		}
	}
}

func TestAmounts(t *testing.T) {
	u := Usage{InputTokens: 100, OutputTokens: 10, CostUSD: 0.5}
	if got := u.Amount().Add(Amount{Tokens: 5}).Sub(Amount{Tokens: 15, CostUSD: 0.25}); got != (Amount{Tokens: 100, CostUSD: 0.25}) {
		t.Errorf("%+v", got)
	}
	p := Price{Input: 2, Cached: 0.5, Output: 10}
	if got := p.Cost(1_000_000, 400_000, 100_000); got != 1.2+0.2+1 {
		t.Errorf("cost %g", got)
	}
	if got := (Price{Input: 2}).Cost(1_000_000, 500_000, 0); got != 2 {
		t.Errorf("cost without a price for the cache %g", got)
	}
}
