package cluster

import "context"

// InstallPackages installs those Debian packages whose file is missing, for programs that need more than the cluster itself.
func InstallPackages(ctx context.Context, say func(string, ...any), want map[string]string) error {
	return (&Cluster{say: say}).installPackages(ctx, want)
}
