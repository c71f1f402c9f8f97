package driver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
)

// requestTLS is what a client may say before anything else: the server answers by one byte, and who hangs up then is not worth a line of
// its log (log_connections, where somebody set it, has one).
const requestTLS = 80877103

// Greet is answered by a server that takes new sessions, will, or did: one that starts or stops answers, too. It needs the server's first
// process and a new one of it, and nothing of the disk. Where no server listens it fails at once; of one that hangs it waits for ctx.
func (d *Driver) Greet(ctx context.Context) error {
	path := filepath.Join(d.cfg.RunDir, ".s.PGSQL."+strconv.Itoa(d.cfg.Port))
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("greet the server: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	hello := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 8), requestTLS)
	_, err = c.Write(hello)
	if err == nil {
		_, err = io.ReadFull(c, make([]byte, 1))
	}
	err = errors.Join(err, c.Close())
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("greet the server: %w", err)
	}
	return nil
}
