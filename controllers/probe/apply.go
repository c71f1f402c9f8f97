package probe

import "context"

// apply does what was planned. What fails ends it: what comes after needs what comes before.
func (r *Reconciler) apply(ctx context.Context, p Plan) error {
	for _, obj := range p.Apply {
		if err := r.Writer.Apply(ctx, obj); err != nil {
			return err
		}
	}
	if p.Remove != nil {
		return r.Writer.Delete(ctx, p.Remove)
	}
	return nil
}
