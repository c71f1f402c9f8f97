package driver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// binaries is where the server's programs are.
type binaries struct{ dir string }

func (b binaries) path(name string) string { return filepath.Join(b.dir, name) }

// major release of the programs, 0 if it cannot be told.
func (b binaries) major() int {
	for part := range strings.SplitSeq(b.dir, "/") {
		if n, err := strconv.Atoi(strings.TrimPrefix(part, "pgsql-")); err == nil {
			return n
		}
	}
	n, _ := strconv.Atoi(os.Getenv("PG_MAJOR")) // the official image says it; 0 takes the careful way
	return n
}

// findBinaries prefers the directory of the data's major version: an image may hold two.
func findBinaries(dir string, major int) (binaries, error) {
	if dir != "" {
		if !complete(dir) {
			return binaries{}, fmt.Errorf("no PostgreSQL server in %s", dir)
		}
		return binaries{dir}, nil
	}
	candidates := candidateDirs()
	for _, c := range candidates {
		if major > 0 && strings.Contains(c, strconv.Itoa(major)) && complete(c) {
			return binaries{c}, nil
		}
	}
	for _, c := range candidates {
		if complete(c) {
			return binaries{c}, nil
		}
	}
	return binaries{}, errors.New("no PostgreSQL server in the image: looked on PATH, in /usr/lib/postgresql/*/bin, /usr/local/bin and /usr/pgsql-*/bin; set spec.image to one that has it")
}

func candidateDirs() []string {
	var all []string
	if path, err := exec.LookPath("postgres"); err == nil {
		all = append(all, filepath.Dir(path))
	}
	var packaged []string
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"} {
		found, _ := filepath.Glob(pattern) // the patterns are well formed
		packaged = append(packaged, found...)
	}
	sort.Sort(sort.Reverse(sort.StringSlice(packaged))) // the newest first; all majors have two digits
	return append(append(all, packaged...), "/usr/local/bin")
}

func complete(dir string) bool {
	for _, name := range []string{"postgres", "initdb", "pg_basebackup", "pg_rewind", "pg_controldata", "pg_waldump"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.IsDir() {
			return false
		}
	}
	return true
}

// dataMajor of a data directory, 0 if there is none.
func dataMajor(dir string) int {
	raw, err := os.ReadFile(filepath.Join(dir, "PG_VERSION"))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(raw))) // 0 is the answer for nonsense, too
	return n
}
