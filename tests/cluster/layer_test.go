package cluster

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLayerHoldsOnlyWhatDiffersFromItsBase(t *testing.T) {
	base, root, blobs := t.TempDir(), t.TempDir(), t.TempDir()
	then := time.Now().Add(-time.Hour)
	write := func(dir, name, text string) {
		path := filepath.Join(dir, name)
		if err := errors.Join(writeInPlace(path, text), os.Chtimes(path, then, then)); err != nil {
			t.Fatal(err)
		}
	}
	write(base, "same", "1")
	write(root, "same", "1")
	write(base, "changed", "1")
	write(root, "changed", "12")
	write(base, "gone", "1")
	write(base, "old/deep", "1")
	write(root, "new/deep", "1")
	if err := errors.Join(os.Symlink("same", filepath.Join(root, "link")), os.Link(filepath.Join(root, "changed"), filepath.Join(root, "hard"))); err != nil {
		t.Fatal(err)
	}
	l, err := writeLayer(blobs, root, base)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{".wh.gone", ".wh.old", "changed", "hard=changed", "link=same", "new/", "new/deep"}
	if got := entries(t, blobs, l); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestEqualFilesGiveEqualLayers(t *testing.T) {
	digests := map[string]bool{}
	for range 2 {
		root := t.TempDir()
		if err := writeInPlace(filepath.Join(root, "a"), "x"); err != nil {
			t.Fatal(err)
		}
		l, err := writeLayer(t.TempDir(), root, "")
		if err != nil {
			t.Fatal(err)
		}
		digests[l.digest] = true
		time.Sleep(10 * time.Millisecond) // other times of the files
	}
	if len(digests) != 1 {
		t.Errorf("two digests: %v", digests)
	}
}

func entries(t *testing.T, blobs string, l layer) []string {
	t.Helper()
	file, err := os.Open(filepath.Join(blobs, strings.TrimPrefix(l.digest, "sha256:")))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	zip, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		name := h.Name
		if h.Linkname != "" {
			name += "=" + h.Linkname
		}
		names = append(names, name)
	}
}
