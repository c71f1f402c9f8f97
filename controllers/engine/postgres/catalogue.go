package postgres

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

//go:embed parameters.tsv
var parametersTSV string

// parameter is what PostgreSQL says of one of its settings.
type parameter struct {
	name         string
	since, until int // majors; 0 for no bound
	context      string
	kind         string
	unit         string
	least, most  float64
	bounded      bool
	choices      []string
}

type catalogue map[string]parameter

// readCatalogue reads the embedded table; a malformed row or number is a fault of the build, found by its test.
func readCatalogue(table string) catalogue {
	all := catalogue{}
	for line := range strings.Lines(table) {
		f := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if strings.HasPrefix(line, "#") || len(f) != 9 {
			continue
		}
		p := parameter{name: f[0], context: f[3], kind: f[4], unit: dash(f[5])}
		p.since, _ = strconv.Atoi(dash(f[1]))
		p.until, _ = strconv.Atoi(dash(f[2]))
		if f[6] != "-" {
			p.least, _ = strconv.ParseFloat(f[6], 64)
			p.most, _ = strconv.ParseFloat(f[7], 64)
			p.bounded = true
		}
		if f[8] != "-" {
			p.choices = strings.Split(f[8], ",")
		}
		all[p.name] = p
	}
	return all
}

func dash(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

// known in that major.
func (p parameter) known(major int) bool {
	return (p.since == 0 || major >= p.since) && (p.until == 0 || major <= p.until)
}

// restart is true for a parameter that takes effect only when the server starts.
func (p parameter) restart() bool { return p.context == "postmaster" }

// check says what is wrong with a value, or nil. A bad value would keep a server from starting, long after it was written.
func (p parameter) check(value string) error {
	switch p.kind {
	case "bool":
		if !isBool(value) {
			return fmt.Errorf("is a switch: write on or off")
		}
	case "enum":
		return p.checkChoice(value)
	case "integer", "real":
		return p.checkNumber(value)
	}
	return nil
}

func (p parameter) checkChoice(value string) error {
	lower := strings.ToLower(value)
	if slices.Contains(p.choices, lower) {
		return nil
	}
	if slices.Contains(p.choices, "on") && isBool(value) {
		return nil
	}
	return fmt.Errorf("is one of %s", strings.Join(p.choices, ", "))
}

func (p parameter) checkNumber(value string) error {
	n, err := inUnit(value, p.unit)
	if err != nil {
		return err
	}
	if p.bounded && (n < p.least || n > p.most) {
		return fmt.Errorf("is between %s and %s%s", number(p.least), number(p.most), unitText(p.unit))
	}
	return nil
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func unitText(unit string) string {
	if unit == "" {
		return ""
	}
	return " (in units of " + unit + ")"
}

func isBool(value string) bool {
	switch strings.ToLower(value) {
	case "on", "off", "true", "false", "yes", "no", "1", "0", "t", "f", "y", "n":
		return true
	}
	return false
}

func isOff(value string) bool {
	switch strings.ToLower(value) {
	case "off", "false", "no", "0", "f", "n":
		return true
	}
	return false
}

// bytesPer and microsPer are PostgreSQL's units; those of memory distinguish case.
func bytesPer(unit string) float64 {
	switch unit {
	case "B":
		return 1
	case "kB":
		return 1 << 10
	case "8kB":
		return 8 << 10
	case "MB":
		return 1 << 20
	case "GB":
		return 1 << 30
	case "TB":
		return 1 << 40
	}
	return 0
}

func microsPer(unit string) float64 {
	switch unit {
	case "us":
		return 1
	case "ms":
		return 1e3
	case "s":
		return 1e6
	case "min":
		return 60e6
	case "h":
		return 3600e6
	case "d":
		return 86400e6
	}
	return 0
}

// inUnit reads a number with an optional unit and gives it in the parameter's own unit.
func inUnit(value, unit string) (float64, error) {
	text := strings.TrimSpace(value)
	end := strings.LastIndexAny(text, "0123456789.") + 1
	n, err := strconv.ParseFloat(text[:end], 64)
	if err != nil || math.IsInf(n, 0) || math.IsNaN(n) {
		return 0, fmt.Errorf("is a number%s", unitText(unit))
	}
	given := strings.TrimSpace(text[end:])
	if given == "" {
		return n, nil
	}
	if per := bytesPer(unit); per > 0 && bytesPer(given) > 0 && given != "8kB" {
		return n * bytesPer(given) / per, nil
	}
	if per := microsPer(unit); per > 0 && microsPer(given) > 0 {
		return n * microsPer(given) / per, nil
	}
	return 0, fmt.Errorf("has no unit %q%s", given, unitText(unit))
}
