/*
 * Writes in a known order to two files at once, each write durable before the next begins: what a snapshot, or a cut of
 * the power, may leave of them is a prefix of that order, and nothing else.
 *
 *   ordered FIRST SECOND SLOTS STOP EVERY
 *
 * Write n (from 1) goes to FIRST when n is odd, else to SECOND: a block of 4 KiB that holds n over and over, in slot
 * ((n / 2) * 7919) mod SLOTS. FIRST is flushed after each write, SECOND is written past the cache. Prints `AT n` when
 * another EVERY writes are durable, and ends with `LAST n` when the file STOP is there.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BLOCK 4096

static int target(const char *path, int flags, long slots)
{
    int fd = open(path, O_RDWR | O_CREAT | flags, 0644);
    if (fd < 0 || ftruncate(fd, slots * BLOCK) != 0 || fsync(fd) != 0) {
        perror(path);
        exit(1);
    }
    return fd;
}

int main(int count, char **words)
{
    uint64_t *block;
    if (count != 6 || posix_memalign((void **)&block, BLOCK, BLOCK) != 0)
        return 2;
    long slots = atol(words[3]), every = atol(words[5]);
    int first = target(words[1], 0, slots), second = target(words[2], O_DIRECT, slots);
    setvbuf(stdout, NULL, _IOLBF, 0);
    uint64_t n = 1;
    for (; n % 16 != 0 || access(words[4], F_OK) != 0; n++) {
        int fd = n % 2 ? first : second;
        for (int i = 0; i < BLOCK / 8; i++)
            block[i] = n;
        if (pwrite(fd, block, BLOCK, (long)(n / 2 * 7919 % slots) * BLOCK) != BLOCK) {
            perror("write");
            return 1;
        }
        if (fd == first && fdatasync(fd) != 0) {
            perror("flush");
            return 1;
        }
        if (n % every == 0)
            printf("AT %llu\n", (unsigned long long)n);
    }
    printf("LAST %llu\n", (unsigned long long)(n - 1));
    return 0;
}
