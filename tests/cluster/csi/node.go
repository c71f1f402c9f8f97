package main

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node, AccessibleTopology: d.topology()}, nil
}

func (driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	var capabilities []*csi.NodeServiceCapability
	for _, t := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	} {
		capabilities = append(capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return &csi.NodeGetCapabilitiesResponse{Capabilities: capabilities}, nil
}

// NodeStageVolume mounts the image. With "-o loop" the loop device goes when the last mount goes, even when
// that happens because the node lost its power.
func (d driver) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	image, err := d.image(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(image); err != nil {
		return nil, status.Errorf(codes.NotFound, "stage volume %s: %v", r.GetVolumeId(), err)
	}
	target := r.GetStagingTargetPath()
	device, err := mounted(target)
	if err == nil && device == "" {
		err = errors.Join(os.MkdirAll(target, 0o750), mount(ctx, "-t", "xfs", "-o", "loop", image, target))
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "stage volume %s: %v", r.GetVolumeId(), err)
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

func (driver) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := unmount(ctx, r.GetStagingTargetPath()); err != nil {
		return nil, status.Errorf(codes.Internal, "unstage volume %s: %v", r.GetVolumeId(), err)
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (driver) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	target := r.GetTargetPath()
	device, err := mounted(target)
	if err == nil && device == "" {
		options := "bind"
		if r.GetReadonly() {
			options = "bind,ro"
		}
		err = errors.Join(os.MkdirAll(target, 0o750), mount(ctx, "-o", options, r.GetStagingTargetPath(), target))
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "publish volume %s: %v", r.GetVolumeId(), err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (driver) NodeUnpublishVolume(ctx context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	err := unmount(ctx, r.GetTargetPath())
	if err == nil {
		err = os.Remove(r.GetTargetPath())
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, status.Errorf(codes.Internal, "unpublish volume %s: %v", r.GetVolumeId(), err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (d driver) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	image, err := d.image(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	size, err := wantedSize(r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	device, err := mounted(r.GetVolumePath())
	if err == nil && device == "" {
		err = errors.New("it is not mounted")
	}
	if err == nil {
		err = growImage(ctx, image, device, r.GetVolumePath(), size)
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "expand volume %s: %v", r.GetVolumeId(), err)
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

func (driver) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(r.GetVolumePath(), &s); err != nil {
		return nil, status.Errorf(codes.NotFound, "stat volume %s: %v", r.GetVolumeId(), err)
	}
	unit := s.Bsize
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: int64(s.Blocks) * unit, Used: int64(s.Blocks-s.Bfree) * unit, Available: int64(s.Bavail) * unit},
		{Unit: csi.VolumeUsage_INODES, Total: int64(s.Files), Used: int64(s.Files - s.Ffree), Available: int64(s.Ffree)},
	}}, nil
}

func mount(ctx context.Context, args ...string) error {
	return command(ctx, "mount", args...)
}
