package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	blink = 200 * time.Millisecond
	// nag is how often a run without a terminal says that it still waits.
	nag = 30 * time.Second
	// width that fits every terminal.
	width = 79
)

// progress tells what is being waited for and for how long: one line that lives on a terminal, plain lines elsewhere.
type progress struct {
	out      io.Writer
	terminal bool
	now      func() time.Time
}

func newProgress(out *os.File) *progress {
	info, err := out.Stat()
	return &progress{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb", now: time.Now}
}

// do runs one step. The step may say what it waits for by calling detail, from any goroutine.
func (p *progress) do(name string, step func(detail func(string)) error) error {
	began := p.now()
	var lock sync.Mutex
	var newest string
	detail := func(text string) {
		lock.Lock()
		defer lock.Unlock()
		newest = text
	}
	read := func() string {
		lock.Lock()
		defer lock.Unlock()
		return newest
	}
	ended := make(chan error, 1)
	go func() { ended <- step(detail) }()
	err := p.watch(name, began, read, ended)
	took := p.now().Sub(began).Round(100 * time.Millisecond)
	mark := "ok  "
	if err != nil {
		mark = "FAIL"
	}
	p.line(fmt.Sprintf("%s %s  (%s)", mark, name, took), true)
	return err
}

func (p *progress) watch(name string, began time.Time, detail func() string, ended <-chan error) error {
	tick := time.NewTicker(blink)
	defer tick.Stop()
	if !p.terminal {
		p.line("...  "+name, true)
	}
	said, saidAt := "", began
	for {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
		}
		waited, text := p.now().Sub(began).Round(time.Second), detail()
		switch {
		case p.terminal:
			p.line(strings.TrimRight(fmt.Sprintf("...  %s  %s  %s", name, waited, text), " "), false)
		case text != said && p.now().Sub(saidAt) > time.Second, p.now().Sub(saidAt) > nag:
			p.line(strings.TrimRight(fmt.Sprintf("     %4s  %s", waited, text), " "), true)
			said, saidAt = text, p.now()
		}
	}
}

// line writes one line; on a terminal it replaces the one that lives.
func (p *progress) line(text string, final bool) {
	if !p.terminal {
		fmt.Fprintln(p.out, text)
		return
	}
	if runes := []rune(text); len(runes) > width {
		text = string(runes[:width-1]) + "…"
	}
	end := ""
	if final {
		end = "\n"
	}
	fmt.Fprintf(p.out, "\r\x1b[K%s%s", text, end)
}

// lastLine hands on the newest whole line of what is written to it.
type lastLine struct {
	to   func(string)
	text string
	part string
}

func (l *lastLine) Write(data []byte) (int, error) {
	lines := strings.Split(l.part+string(data), "\n")
	l.part = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		if line = strings.TrimSpace(line); line != "" {
			l.text = line
			l.to(line)
		}
	}
	return len(data), nil
}
