package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// PowerOff ends a node at one instant: kubelet, containerd and every process of its pods. Its disk stays.
func (c *Cluster) PowerOff(ctx context.Context, node string) error {
	i, err := c.index(node)
	if err != nil {
		return err
	}
	if err := c.cutPower(ctx, i); err != nil {
		return fmt.Errorf("power off %s: %w", nodeName(i), err)
	}
	return nil
}

// PowerOn starts a node again and returns when its kubelet is running. WaitNode waits until it is Ready.
func (c *Cluster) PowerOn(ctx context.Context, node string) error {
	i, err := c.index(node)
	if err != nil {
		return err
	}
	if _, err := c.pid(nodeName(i) + "-init"); err == nil {
		return nil
	}
	if err := c.boot(ctx, i); err != nil {
		return fmt.Errorf("power on %s: %w", nodeName(i), err)
	}
	if err := c.startServices(i); err != nil {
		return fmt.Errorf("power on %s: %w", nodeName(i), err)
	}
	return nil
}

// StopKubelet ends the kubelet of a node; its pods go on running, unwatched.
func (c *Cluster) StopKubelet(ctx context.Context, node string) error {
	i, err := c.index(node)
	if err != nil {
		return err
	}
	return c.stop(ctx, nodeName(i)+"-kubelet")
}

// StartKubelet starts it again.
func (c *Cluster) StartKubelet(_ context.Context, node string) error {
	i, err := c.index(node)
	if err != nil {
		return err
	}
	if _, err := c.pid(nodeName(i) + "-kubelet"); err == nil {
		return nil
	}
	return c.startKubelet(i)
}

// StopAPIServer ends the API server; everything else goes on without it.
func (c *Cluster) StopAPIServer(ctx context.Context) error { return c.stop(ctx, "kube-apiserver") }

// StartAPIServer starts it again and returns when it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if _, err := c.pid("kube-apiserver"); err != nil {
		if err := c.start(c.controlDaemon("kube-apiserver", c.apiServerArgs()...)); err != nil {
			return err
		}
	}
	return c.waitAPI(ctx)
}

// Cut drops everything between two places, each "node1" … or "control", in both directions.
func (c *Cluster) Cut(ctx context.Context, a, b string) error {
	return errors.Join(c.CutOneWay(ctx, a, b), c.CutOneWay(ctx, b, a))
}

// CutOneWay drops what goes from one place to another; the way back stays open.
func (c *Cluster) CutOneWay(ctx context.Context, from, to string) error {
	return c.filter(ctx, from, to, "drop")
}

// Partition cuts a place off from everybody.
func (c *Cluster) Partition(ctx context.Context, place string) error {
	return errors.Join(c.filter(ctx, place, "", "drop"), c.filter(ctx, "", place, "drop"))
}

// Lose drops a share of the packets that come from a place, in percent.
func (c *Cluster) Lose(ctx context.Context, place string, percent int) error {
	if percent < 1 || percent > 100 {
		return fmt.Errorf("lose %d percent of the packets: it must be 1 to 100", percent)
	}
	return c.filter(ctx, place, "", fmt.Sprintf("numgen random mod 100 < %d drop", percent))
}

// Heal ends every cut and loss.
func (c *Cluster) Heal(ctx context.Context) error {
	_, err := c.nft(ctx, "add table bridge plimsoll\ndelete table bridge plimsoll\n")
	return err
}

// filter adds a rule on the bridge, where every packet between two places passes. An empty name means any place.
func (c *Cluster) filter(ctx context.Context, from, to, verdict string) error {
	match := ""
	for _, end := range []struct{ key, place string }{{"iifname", from}, {"oifname", to}} {
		if end.place == "" {
			continue
		}
		port, err := c.port(end.place)
		if err != nil {
			return err
		}
		match += fmt.Sprintf("%s %q ", end.key, port)
	}
	_, err := c.nft(ctx, `add table bridge plimsoll
add chain bridge plimsoll faults { type filter hook forward priority 0; }
add rule bridge plimsoll faults `+match+verdict+"\n")
	if err != nil {
		return fmt.Errorf("cut %q from %q: %w", from, to, err)
	}
	return nil
}

func (c *Cluster) nft(ctx context.Context, script string) (string, error) {
	return runFor(ctx, 10*time.Second, script, "nsenter", "--net=/run/netns/"+fabric, "nft", "-f", "-")
}

// port returns the bridge's port of a node or of the control plane; both carry the place's name.
func (c *Cluster) port(place string) (string, error) {
	if place == control {
		return control, nil
	}
	i, err := c.index(place)
	if err != nil {
		return "", err
	}
	return nodeName(i), nil
}
