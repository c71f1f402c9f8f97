package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	topologyKey = "topology.plimsoll.test/node"
	minSize     = 32 << 20 // a little above the least that XFS can do
	block       = 4096
)

func (driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{{
		Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME}},
	}}}, nil
}

// CreateVolume makes an image of the wanted size. It is sparse: it takes room as it fills.
func (d driver) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	image, err := d.image(r.GetName())
	if err != nil {
		return nil, err
	}
	for _, c := range r.GetVolumeCapabilities() {
		if c.GetMount() == nil {
			return nil, status.Error(codes.InvalidArgument, "only file system volumes are supported")
		}
	}
	size, err := wantedSize(r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(image)
	switch {
	case err == nil && info.Size() != size:
		return nil, status.Errorf(codes.AlreadyExists, "volume %s exists with %d bytes", r.GetName(), info.Size())
	case errors.Is(err, os.ErrNotExist):
		err = makeImage(ctx, image, size)
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "create volume %s: %v", r.GetName(), err)
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: r.GetName(), CapacityBytes: size, VolumeContext: r.GetParameters(), AccessibleTopology: []*csi.Topology{d.topology()},
	}}, nil
}

// DeleteVolume removes the image. On another node than the volume's there is nothing to remove.
func (d driver) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	image, err := d.image(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if err := os.Remove(image); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, status.Errorf(codes.Internal, "delete volume %s: %v", r.GetVolumeId(), err)
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (d driver) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: r.GetVolumeCapabilities()},
	}, nil
}

func (d driver) topology() *csi.Topology {
	return &csi.Topology{Segments: map[string]string{topologyKey: d.node}}
}

// image returns the path of a volume's image.
func (d driver) image(id string) (string, error) {
	if d.disk == "" {
		return "", status.Error(codes.FailedPrecondition, "this instance has no disk")
	}
	if id == "" || strings.ContainsAny(id, "/\x00") || strings.HasPrefix(id, ".") {
		return "", status.Errorf(codes.InvalidArgument, "bad volume name %q", id)
	}
	return filepath.Join(d.disk, id+".img"), nil
}

// wantedSize rounds up to whole blocks.
func wantedSize(r *csi.CapacityRange) (int64, error) {
	size := (max(r.GetRequiredBytes(), minSize) + block - 1) / block * block
	if limit := r.GetLimitBytes(); limit > 0 && size > limit {
		return 0, status.Errorf(codes.OutOfRange, "the smallest fitting volume has %d bytes, the limit is %d", size, limit)
	}
	return size, nil
}
