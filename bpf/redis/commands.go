package redis

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// What a command does to its connection: enum command_kind of types.h.
const (
	plain = iota
	auth
	hello
	selects
	resets
	execs
	discards
	subscribes
	monitors
	replicates
	replies
	message
)

// Flags of a command, and where its key is if that is behind a word.
const (
	contains   = 1 // subcommands
	blocks     = 2 // it may wait for what others do
	countsKeys = 4 // the argument before the keys says how many they are

	afterStreams = 255
)

// group is commands that are alike.
type group struct {
	kind, key, flags uint8
	names            string
}

// groups are the commands of Redis 7.0 and those that later ones and Valkey have added, by where their first key is. What is not among them has no name of
// its own: what a client sends in place of a command may be anything.
func groups() []group {
	return []group{
		{key: 1, names: `append bitcount bitfield bitfield_ro bitpos copy decr decrby del dump exists expire expireat expiretime geoadd geodist
			geohash geopos georadius georadius_ro georadiusbymember georadiusbymember_ro geosearch geosearchstore get getbit getdel getex getrange getset
			hdel hexists hexpire hexpireat hexpiretime hget hgetall hgetdel hgetex hincrby hincrbyfloat hkeys hlen hmget hmset hpersist hpexpire hpexpireat
			hpexpiretime hpttl hrandfield hscan hset hsetex hsetnx hstrlen httl hvals incr incrby incrbyfloat lcs lindex linsert llen lmove lpop lpos lpush
			lpushx lrange lrem lset ltrim mget move mset msetnx persist pexpire pexpireat pexpiretime pfadd pfcount pfmerge psetex pttl publish rename
			renamenx restore restore-asking rpop rpoplpush rpush rpushx sadd scard sdiff sdiffstore set setbit setex setnx setrange sinter sinterstore
			sismember smembers smismember smove sort sort_ro spop spublish srandmember srem sscan strlen substr sunion sunionstore touch ttl type unlink
			vadd vcard vdim vemb vgetattr vinfo vismember vlinks vrandmember vrem vsetattr vsim watch xack xackdel xadd xautoclaim xclaim xdel xdelex xlen
			xpending xrange xrevrange xsetid xtrim zadd zcard zcount zdiffstore zincrby zinterstore zlexcount zmscore zpopmax zpopmin zrandmember zrange
			zrangebylex zrangebyscore zrangestore zrank zrem zremrangebylex zremrangebyrank zremrangebyscore zrevrange zrevrangebylex zrevrangebyscore
			zrevrank zscan zscore zunionstore delifeq delex digest msetex`},
		{key: 1, flags: blocks, names: "blmove blpop brpop brpoplpush bzpopmax bzpopmin"},
		{key: 2, names: `bitop memory|usage object|encoding object|freq object|idletime object|refcount pfdebug xgroup|create xgroup|createconsumer
			xgroup|delconsumer xgroup|destroy xgroup|setid xinfo|consumers xinfo|groups xinfo|stream`},
		{key: 2, flags: countsKeys, names: "lmpop sintercard zdiff zinter zintercard zmpop zunion"},
		{key: 3, flags: countsKeys, names: "eval eval_ro evalsha evalsha_ro fcall fcall_ro"},
		{key: 3, flags: blocks | countsKeys, names: "blmpop bzmpop"},
		{key: 3, names: "migrate"},
		{key: afterStreams, names: "xread xreadgroup"},
		{flags: blocks, names: "wait waitaof"},
		{flags: contains, names: `acl client cluster command commandlog config function latency memory module object pubsub script slowlog xgroup xinfo`},
		{names: `acl|cat acl|deluser acl|dryrun acl|genpass acl|getuser acl|help acl|list acl|load acl|log acl|save acl|setuser acl|users acl|whoami asking
			bgrewriteaof bgsave client|caching client|capa client|getname client|getredir client|help client|id client|import-source client|info
			client|kill client|list client|no-evict client|no-touch client|pause client|setinfo client|setname client|tracking client|trackinginfo
			client|unblock client|unpause cluster|addslots cluster|addslotsrange cluster|bumpepoch cluster|count-failure-reports
			cluster|countkeysinslot cluster|delslots cluster|delslotsrange cluster|failover cluster|flushslots cluster|forget cluster|getkeysinslot
			cluster|getslotmigrations cluster|help cluster|info cluster|keyslot cluster|links cluster|meet cluster|migrateslots cluster|migration
			cluster|cancelslotmigrations cluster|myid cluster|myshardid cluster|nodes cluster|replicas cluster|replicate cluster|reset cluster|saveconfig
			cluster|set-config-epoch cluster|setslot cluster|shards cluster|slaves cluster|slot-stats cluster|slots cluster|syncslots command|count
			command|docs command|getkeys command|getkeysandflags command|help command|info command|list commandlog|get commandlog|help commandlog|len
			commandlog|reset config|get config|help config|resetstat config|rewrite config|set dbsize debug echo failover flushall flushdb
			function|delete function|dump function|flush function|help function|kill function|list function|load function|restore function|stats info keys
			lastsave latency|doctor latency|graph latency|help latency|histogram latency|history latency|latest latency|reset lolwut memory|doctor
			memory|help memory|malloc-stats memory|purge memory|stats module|help module|list module|load module|loadex module|unload multi object|help
			pfselftest ping pubsub|channels pubsub|help pubsub|numpat pubsub|numsub pubsub|shardchannels pubsub|shardnumsub quit randomkey readonly
			readwrite replconf replicaof role save scan script|debug script|exists script|flush script|help script|kill script|load script|show
			shutdown slaveof slowlog|get slowlog|help slowlog|len slowlog|reset swapdb time unwatch xgroup|help xinfo|help`},
		{kind: auth, names: "auth"},
		{kind: hello, names: "hello"},
		{kind: selects, names: "select"},
		{kind: resets, names: "reset"},
		{kind: execs, names: "exec"},
		{kind: discards, names: "discard"},
		{kind: subscribes, key: 1, names: "subscribe ssubscribe"},
		{kind: subscribes, names: "psubscribe unsubscribe punsubscribe sunsubscribe"},
		{kind: monitors, names: "monitor"},
		{kind: replicates, names: "psync sync"},
		{kind: replies, names: "client|reply"},
	}
}

// messages are first words of what is pushed to subscribers.
const messages = "message pmessage smessage"

// names are those of commands by their number; 0 is none.
func names() []string {
	all := []string{""}
	for _, g := range groups() {
		all = append(all, strings.Fields(g.names)...)
	}
	return all
}

// hash of a name as the kernel's side makes it.
func hash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash never fails to write
	return h.Sum64()
}

// teach tells the kernel's side the names of commands and errors.
func (f *Family) teach() error {
	id := uint16(0)
	for _, g := range groups() {
		for _, name := range strings.Fields(g.names) {
			id++
			if err := f.kernel.Commands.Put(hash(name), kernelCommand{Id: id, Kind: g.kind, Key: g.key, Flags: g.flags}); err != nil {
				return fmt.Errorf("teach the command probe %s: %w", name, err)
			}
		}
	}
	for _, word := range strings.Fields(messages) {
		if err := f.kernel.Commands.Put(hash(word), kernelCommand{Kind: message}); err != nil {
			return fmt.Errorf("teach the command probe %s: %w", word, err)
		}
	}
	for word, state := range event.Words() {
		if err := f.kernel.Errors.Put(hash(word), uint32(state)); err != nil {
			return fmt.Errorf("teach the command probe %s: %w", word, err)
		}
	}
	return nil
}
