//go:build unix && !linux && !darwin

package taskdir

func renameExclusive(fromDir int, from string, toDir int, to string) error {
	return renameChecked(fromDir, from, toDir, to)
}
