package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// Image is what an image says about its files.
type Image struct {
	Entrypoint []string `json:"Entrypoint,omitempty"`
	Cmd        []string `json:"Cmd,omitempty"`
	Env        []string `json:"Env,omitempty"`
	User       string   `json:"User,omitempty"`
	WorkingDir string   `json:"WorkingDir,omitempty"`
}

type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

// writeImage completes an OCI image layout (a directory) whose layers are in blobs/sha256.
func writeImage(dir string, config Image, layers []layer) error {
	m := manifest{SchemaVersion: 2, MediaType: typeManifest}
	var diffIDs []string
	for _, l := range layers {
		m.Layers = append(m.Layers, descriptor{typeLayer, l.digest, l.size})
		diffIDs = append(diffIDs, l.diffID)
	}
	configuration := map[string]any{
		"architecture": "amd64", "os": "linux", "created": "1970-01-01T00:00:00Z", "config": config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffIDs},
	}
	var err error
	if m.Config, err = writeBlob(dir, typeConfig, configuration); err != nil {
		return err
	}
	top, err := writeBlob(dir, typeManifest, m)
	if err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644); err != nil {
		return err
	}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []descriptor{top}})
	if err != nil {
		return fmt.Errorf("write the image's index: %w", err)
	}
	return replaceFile(filepath.Join(dir, "index.json"), index, 0o644) // last: its presence says that the image is complete
}

func writeBlob(dir, kind string, value any) (descriptor, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, fmt.Errorf("write an image's blob: %w", err)
	}
	digest := sha256.Sum256(data)
	d := descriptor{kind, "sha256:" + hex.EncodeToString(digest[:]), int64(len(data))}
	return d, replaceFile(blobPath(dir, d.Digest), data, 0o644)
}

func blobPath(dir, digest string) string {
	return filepath.Join(dir, "blobs", "sha256", strings.TrimPrefix(digest, "sha256:"))
}

// readManifest returns the manifest of a layout and its bytes, whose digest is the image's.
func readManifest(dir string) (manifest, descriptor, []byte, error) {
	var index struct{ Manifests []descriptor }
	data, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		return manifest{}, descriptor{}, nil, fmt.Errorf("read image %s: %w", dir, err)
	}
	if err := json.Unmarshal(data, &index); err != nil || len(index.Manifests) != 1 {
		return manifest{}, descriptor{}, nil, fmt.Errorf("read image %s: want one manifest, have %d: %w", dir, len(index.Manifests), err)
	}
	text, err := os.ReadFile(blobPath(dir, index.Manifests[0].Digest))
	if err != nil {
		return manifest{}, descriptor{}, nil, fmt.Errorf("read image %s: %w", dir, err)
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return manifest{}, descriptor{}, nil, fmt.Errorf("read image %s: %w", dir, err)
	}
	return m, index.Manifests[0], text, nil
}
