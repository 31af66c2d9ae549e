//! What `-?` prints.

/// Usage, without the line that names the program.
pub const USAGE: &str = "\
Valid targets:
     file_path                      a file
     /dev/...                       a block device
     \\\\server\\share\\file, smb://server[:port]/share/file
                                    a file of an SMB server, without a mount
     iscsi://server[:port]/target/LUN
                                    a LUN, without a kernel initiator
     X:\\file, X:, #1                where --drive=X=/directory, --drive=1=/dev/... says

Sizes, offsets and lengths are bytes, or have a suffix K, M, G, T (1024-fold) or b (blocks, see -b).

Options (one word each: -b8K; options come before targets):
  -?, --help            display usage information
  -:<flags>             experimental behaviors; 1 - throttled threads may sleep longer than 1 ms (they always may here)
  -ag, -a[g#,]#[,#,...] processors that threads are bound to in turn [default: all of them]
  -b<size>              block size [64K]
  -B<base>[:length]     first offset, and length of what is used
  -c<size>              create the files anew with this size
  -C<seconds>           cool down time [0]
  -d<seconds>           duration that is measured [10]
  -D<milliseconds>      IOPS per interval: their deviation, in XML all of them [1000]
  -f<size>              end of what is used
  -f<rs>                hints: r random access, s sequential scan
  -F<count>             total number of threads (conflicts with -t)
  -g<value>[i]          limit per thread and target: bytes per millisecond, with i operations per second
  -h                    the same as -Sh
  -i<count>, -j<ms>     operations of a burst, milliseconds between bursts
  -I<priority>          1 very low, 2 low, 3 normal [3]
  -L                    measure latencies
  -n                    bind threads to no processor
  -o<count>             requests outstanding per target and thread [2]
  -O<count>             requests outstanding per thread, for use with -F
  -p                    each request runs through the target by itself
  -P<count>             a dot for each count operations of a thread [65536]
  -r[align]             random offsets, multiples of align [block size]
  -rd<pct|abs><ranges>  where random offsets fall: -rdpct90/10:5/20, -rdabs90/10G
  -rs<percent>          percent of random operations, the others sequential
  -R[p]<text|xml>       format of the result; with p print the profile and run nothing
  -s[i][align]          sequential offsets with this stride [block size]; i: threads share one offset
  -S[bhruw]             b cached, u unbuffered (O_DIRECT), w write-through (O_DSYNC), h = uw, r not the local cache (SMB)
  -t<count>             threads per target [1]
  -T<offs>              distance between the first offsets of threads
  -v[s]                 verbose; s: how threads waited
  -w<percent>           percent of writes [0]. IMPORTANT: what is in the target is lost
  -W<seconds>           warm up time [5]
  -X<file>              an XML profile; targets *1, *2, ... are replaced by those of the command line
  -z[seed]              random seed [0; plain -z: from the run time of the machine]
  -Z, -Zr, -Z<size>[,<file>]
                        content of writes: zeros, random for each write, from a buffer of random bytes or of a file
                        [0, 1, ... 255 again and again]

Beyond DiskSpd:
  --rate=<n>            open loop: n operations per second over all threads, whatever the target does; latencies count
                        from the moment an operation should have begun
  --arrival=<how>       even or poisson [even]
  --mix=<size:percent[:writes],...>
                        a mix of block sizes, each with its percent of the I/O and, if given, its percent of writes
  --copy                copy the first target over the second, once: 8 pieces of 1M at once if there is no -o and -b
  --replay=<file>       the operations of a trace instead of a pattern: fio's iolog (version 2, 3) or blkparse's text; the
                        run ends with the trace if there is no -d; -o is the most that may be outstanding
  --replay-timing=<how> kept: at the trace's times, latencies count from them; fast: as -o allows [kept]
  --replay-name=<name>  which file or device (8,16) of the trace, if it has several
  --verify              writes carry their place, generation and checksum; reads are checked
  --yes                 write over a file that is not ours, or a device, without a question
  --sparse              -c makes files without writing them: reads then measure no disk
  --json                the result as JSON
  --layout=<2.0|2.2>    layout of the text report [2.2]
  --drive=X=/directory  where drive X: of Windows paths is; also HOLDFAST_SPD_DRIVES, separated by ;
  --data=<directory>    the data directory of the node, which must not run, for holdfast://volume/path/file: its volumes
                        without a protocol; also HOLDFAST_SPD_DATA
  --user, --password-file
                        who logs in to a server; also HOLDFAST_SPD_USER, HOLDFAST_SPD_PASSWORD
  --to-user, --to-password-file
                        who logs in to the server of the second target of --copy, where that is somebody else or has
                        another password; also HOLDFAST_SPD_TO_USER, HOLDFAST_SPD_TO_PASSWORD
  --quiet               no progress
  --agents=<a,b,...>    let these machines generate the load, together: host or host:port of each `holdfast spd agent`;
                        {agent} in a target's path becomes each one's number, from 1
  --secret-file=<file>  the secret that the agents have; also HOLDFAST_SPD_SECRET

`holdfast spd agent -?` explains agents, `holdfast spd sweep -?` campaigns over depths, threads, blocks and mixes.

Not on Linux: -e (event tracing), -ft, -l, -N, -Sm (memory mapped), -x (completion routines), -y (events); refused with
the reason.

Examples:
  -c8192K -d1 testfile.dat
  -b4K -t2 -r -o32 -d10 -Sh testfile.dat
  -c1G -b4K -t2 -d10 -a0,1 testfile1.dat testfile2.dat
";
