//go:build linux || darwin

package confine

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// environ returns base with the variables of a command's private directories, and
// makes the directories below HOME that programs expect.
func (j Job) environ(base []string, level Level, l Layout, proxyPort int) []string {
	home, cache := insideHome, insideCache
	if level != Full {
		home, cache = j.Private.Home, j.Private.Cache
	}
	set := map[string]string{
		"HOME": home, "TMPDIR": l.Tmp,
		"XDG_CONFIG_HOME": filepath.Join(home, ".config"), "XDG_CACHE_HOME": filepath.Join(home, ".cache"),
		"XDG_DATA_HOME": filepath.Join(home, ".local/share"), "XDG_STATE_HOME": filepath.Join(home, ".local/state"),
		"XDG_RUNTIME_DIR": filepath.Join(home, ".run"),
	}
	given := map[string]bool{}
	for _, kv := range base {
		name, value, _ := strings.Cut(kv, "=")
		given[name] = true
		if _, ok := set[name]; !ok {
			set[name] = value
		}
	}
	// What the configuration passes on says more than what is good in general.
	for name, value := range caches(cache) {
		if !given[name] {
			set[name] = value
		}
	}
	for name, value := range j.Env {
		if !given[name] {
			set[name] = value
		}
	}
	if j.Reach.Network == NetworkProxy {
		maps.Copy(set, proxyEnv(proxyPort, j.Reach.NoProxy))
	}
	env := make([]string, 0, len(set))
	for _, name := range slices.Sorted(maps.Keys(set)) {
		env = append(env, name+"="+set[name])
	}
	return env
}

// proxyEnv tells programs of the proxy, in the spellings that they look for.
func proxyEnv(port int, direct []string) map[string]string {
	url, none := fmt.Sprintf("http://127.0.0.1:%d", port), strings.Join(direct, ",")
	return map[string]string{
		"HTTP_PROXY": url, "http_proxy": url, "HTTPS_PROXY": url, "https_proxy": url, "NO_PROXY": none, "no_proxy": none,
		"NODE_USE_ENV_PROXY": "1",
	}
}

// caches tells build tools where to keep what they download and build.
func caches(dir string) map[string]string {
	at := func(name string) string { return filepath.Join(dir, name) }
	return map[string]string{
		"GOCACHE": at("go-build"), "GOPATH": at("go"), "GOMODCACHE": at("go/pkg/mod"), "GOFLAGS": "-modcacherw",
		"npm_config_cache": at("npm"), "YARN_CACHE_FOLDER": at("yarn"), "PIP_CACHE_DIR": at("pip"), "UV_CACHE_DIR": at("uv"),
		"CCACHE_DIR": at("ccache"), "DENO_DIR": at("deno"),
	}
}
