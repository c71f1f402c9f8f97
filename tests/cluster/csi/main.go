// Command plimsoll-csi is a CSI driver for tests: each volume is an XFS image on the node's disk behind a loop device.
//
// A volume therefore has a real size: it fills up, grows while it is mounted, and can be frozen.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const driverName = "local.plimsoll.test"

func main() {
	var d driver
	endpoint := flag.String("endpoint", "", "socket of the driver")
	register := flag.String("register", "", "socket by which the kubelet finds the driver; empty: do not register")
	flag.StringVar(&d.node, "node", "", "name of this node")
	flag.StringVar(&d.disk, "disk", "", "directory for the images of this node's volumes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, d, *endpoint, *register); err != nil {
		fmt.Fprintln(os.Stderr, "plimsoll-csi:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, d driver, endpoint, register string) error {
	server := grpc.NewServer(grpc.UnaryInterceptor(logged))
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	csi.RegisterNodeServer(server, d)
	failed := make(chan error, 2)
	if err := serve(server, endpoint, failed); err != nil {
		return err
	}
	defer server.Stop()
	if register != "" { // after the driver's own socket: the kubelet calls back at once
		r := grpc.NewServer()
		registration.RegisterRegistrationServer(r, registrar{endpoint: endpoint})
		if err := serve(r, register, failed); err != nil {
			return err
		}
		defer r.Stop()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

func serve(server *grpc.Server, socket string, failed chan<- error) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return fmt.Errorf("listen on %s: %w", socket, err)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) { // left by a power-off
		return fmt.Errorf("listen on %s: %w", socket, err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", socket, err)
	}
	go func() { failed <- server.Serve(l) }()
	return nil
}

// logged writes down failed calls; the callers only keep them in events.
func logged(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	response, err := handler(ctx, request)
	if err != nil {
		fmt.Fprintln(os.Stderr, info.FullMethod, err)
	}
	return response, err
}
