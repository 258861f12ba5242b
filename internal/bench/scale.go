package main

import "context"

func (b *bench) scaleWaiting(ctx context.Context) error { return nil }
func (b *bench) scaleRounds(ctx context.Context) error  { return nil }
func (b *bench) scaleEnded(ctx context.Context) error   { return nil }
func (b *bench) scaleTurns(ctx context.Context) error   { return nil }
func (b *bench) scaleSoak(ctx context.Context) error    { return nil }
