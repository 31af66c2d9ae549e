/*
 * Random operations on one file of a mounted file system, compared with a copy in memory: what fsx is known for.
 *
 *   torture FILE SEED OPERATIONS BYTES
 *
 * Reads, writes, appends, mapped reads and writes, holes, truncations, flushes, renames of the open file, byte-range locks,
 * and closing with a forgotten cache. Ends with 0 if each byte was always what it had to be; else says which operation was
 * the last, and with which numbers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned char *model, *scratch;
static long size, most, step;
static int fd;
static char names[2][4096];
static int name;
static const char *doing = "opening";
static uint64_t state;

static uint64_t dice(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? state % below : 0;
}

static void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...)
{
    va_list list;
    int why = errno;
    printf("torture: operation %ld, %s: ", step, doing);
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf(" (size %ld, errno %d: %s)\n", size, why, strerror(why));
    exit(1);
}

static void compare(const unsigned char *got, long at, long len)
{
    for (long i = 0; i < len; i++)
        if (got[i] != model[at + i])
            fail("byte %ld is %02x, not %02x", at + i, got[i], model[at + i]);
}

static void fill(long at, long len)
{
    unsigned char seed = dice(256);
    for (long i = 0; i < len; i++)
        model[at + i] = seed + i * 7;
}

/* What lies between the old end and a new one reads as zeros. */
static void grow(long to)
{
    if (to > size) {
        memset(model + size, 0, to - size);
        size = to;
    }
}

static void open_again(void)
{
    fd = open(names[name], O_RDWR | O_CREAT, 0644);
    if (fd < 0)
        fail("%s", names[name]);
}

static void look(long at, long len)
{
    long got = 0;
    doing = "read";
    while (got < len) {
        ssize_t now = pread(fd, scratch + got, len - got, at + got);
        if (now <= 0)
            fail("%ld bytes at %ld gave %zd after %ld", len, at, now, got);
        got += now;
    }
    compare(scratch, at, len);
}

static void put(long at, long len)
{
    doing = "write";
    grow(at);
    fill(at, len);
    if (at + len > size)
        size = at + len;
    if (pwrite(fd, model + at, len, at) != len)
        fail("%ld bytes at %ld", len, at);
}

static void append(long len)
{
    doing = "append";
    int more = open(names[name], O_WRONLY | O_APPEND);
    if (more < 0)
        fail("open");
    fill(size, len);
    if (write(more, model + size, len) != len)
        fail("%ld bytes", len);
    size += len;
    if (close(more))
        fail("close");
}

static void map(long at, long len, int change)
{
    long page = sysconf(_SC_PAGESIZE), from = at / page * page;
    doing = change ? "mapped write" : "mapped read";
    unsigned char *mapped = mmap(NULL, at - from + len, change ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, from);
    if (mapped == MAP_FAILED)
        fail("%ld bytes at %ld", len, at);
    if (change) {
        fill(at, len);
        memcpy(mapped + (at - from), model + at, len);
        if (msync(mapped, at - from + len, MS_SYNC))
            fail("msync of %ld bytes at %ld", len, at);
    } else {
        compare(mapped + (at - from), at, len);
    }
    munmap(mapped, at - from + len);
}

static void cut(long to)
{
    doing = "truncate";
    if (ftruncate(fd, to))
        fail("to %ld", to);
    grow(to);
    size = to;
}

static void hole(long at, long len)
{
    doing = "hole";
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, len)) {
        if (errno == EOPNOTSUPP)
            return;
        fail("%ld bytes at %ld", len, at);
    }
    memset(model + at, 0, at + len > size ? size - at : len);
}

static void locked_write(long at, long len)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = len};
    doing = "lock";
    if (fcntl(fd, F_SETLK, &lock))
        fail("%ld bytes at %ld", len, at);
    put(at, len);
    lock.l_type = F_UNLCK;
    doing = "unlock";
    if (fcntl(fd, F_SETLK, &lock))
        fail("%ld bytes at %ld", len, at);
}

static void forget(void)
{
    doing = "close";
    if (fsync(fd))
        fail("fsync");
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (close(fd))
        fail("close");
    doing = "open";
    open_again();
}

static void change_name(void)
{
    doing = "rename";
    if (rename(names[name], names[1 - name]))
        fail("%s", names[name]);
    name = 1 - name;
}

int main(int count, char **words)
{
    if (count != 5) {
        fprintf(stderr, "usage: torture FILE SEED OPERATIONS BYTES\n");
        return 2;
    }
    state = strtoull(words[2], NULL, 10) * 2654435761u + 1;
    long operations = atol(words[3]);
    most = atol(words[4]);
    model = calloc(1, most);
    scratch = malloc(most);
    if (!model || !scratch || most < 2)
        fail("%ld bytes of memory", most);
    snprintf(names[0], sizeof names[0], "%s", words[1]);
    snprintf(names[1], sizeof names[1], "%s.renamed", words[1]);
    open_again();
    for (step = 0; step < operations; step++) {
        long at = dice(most - 1), room = most - at, len = 1 + dice(room < 65536 ? room : 65536);
        long inside = size ? dice(size) : 0, rest = size - inside;
        long part = rest ? 1 + dice(rest < 65536 ? rest : 65536) : 0;
        switch (dice(24)) {
        case 0: cut(at); break;
        case 1: if (size) hole(inside, part); break;
        case 2: forget(); break;
        case 3: change_name(); break;
        case 4: case 5: if (size + len <= most) append(len); break;
        case 6: case 7: if (size) map(inside, part, 1); break;
        case 8: case 9: if (size) map(inside, part, 0); break;
        case 10: locked_write(at, len); break;
        case 11: doing = "fsync"; if (fsync(fd)) fail("fsync"); break;
        case 12: case 13: case 14: case 15: case 16: case 17: put(at, len); break;
        default: if (size) look(inside, part); break;
        }
    }
    forget();
    if (lseek(fd, 0, SEEK_END) != size)
        fail("the file has another size");
    if (size)
        look(0, size);
    close(fd);
    unlink(names[name]);
    printf("torture: %ld operations, all bytes right\n", operations);
    return 0;
}
