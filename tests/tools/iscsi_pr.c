/* iscsi_pr - one persistent-reservation command as an initiator of a given name, with libiscsi.
 *
 *   iscsi_pr URL WHO register KEY [aptpl] | reserve KEY TYPE | preempt KEY VICTIM TYPE | clear KEY
 *                  | keys | holder | write | read | luns | cold-reset | watch FILE | targets
 *
 * WHO (1, 2, 3 ...) makes initiator name and ISID, so that each run of one WHO is the same I_T nexus. Prints GOOD,
 * RESERVATION CONFLICT, the sense otherwise, or the keys. Ends with 1 only when there was no answer at all.
 *
 * luns prints the numbers that REPORT LUNS tells. cold-reset prints the target's response (0 is done). watch says WATCHING,
 * reads block 0 again and again in one session until there is FILE, and says GOOD, or LOST when the session has ended. targets
 * prints the names that a discovery session is told; it needs a user in the URL only where discovery asks for one.
 * gcc -O1 -o iscsi_pr iscsi_pr.c -liscsi
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>

static struct iscsi_context *iscsi;
static int lun;

static void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, iscsi_get_error(iscsi));
    exit(1);
}

static void put64(unsigned char *p, uint64_t v)
{
    for (int i = 7; i >= 0; i--, v >>= 8) p[i] = v & 0xff;
}

static uint64_t get64(const unsigned char *p)
{
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) v = v << 8 | p[i];
    return v;
}

/* Sends a command; a unit attention is taken note of and the command sent again. */
static struct scsi_task *send(unsigned char *cdb, int n, int dir, int len, unsigned char *out)
{
    struct scsi_task *t = NULL;
    for (int i = 0; i < 8; i++) {
        struct iscsi_data d = { .size = out ? len : 0, .data = out };
        t = scsi_create_task(n, cdb, dir, len);
        if (!iscsi_scsi_command_sync(iscsi, lun, t, out ? &d : NULL)) die("command");
        if (t->status != SCSI_STATUS_CHECK_CONDITION || t->sense.key != SCSI_SENSE_UNIT_ATTENTION) return t;
        scsi_free_scsi_task(t);
    }
    die("unit attentions without end");
    return NULL;
}

static int report(struct scsi_task *t)
{
    if (t->status == SCSI_STATUS_GOOD) puts("GOOD");
    else if (t->status == SCSI_STATUS_RESERVATION_CONFLICT) puts("RESERVATION CONFLICT");
    else printf("status %d sense %d ascq 0x%04x\n", t->status, t->sense.key, t->sense.ascq);
    return 0;
}

static struct scsi_task *pr_out(int action, int type, uint64_t key, uint64_t service_key, int aptpl)
{
    unsigned char cdb[10] = { 0x5f, action, type }, p[24] = { 0 };
    cdb[8] = sizeof p;
    put64(p, key);
    put64(p + 8, service_key);
    p[20] = aptpl ? 1 : 0;
    return send(cdb, 10, SCSI_XFER_WRITE, sizeof p, p);
}

static struct scsi_task *pr_in(int action)
{
    unsigned char cdb[10] = { 0x5e, action };
    cdb[7] = 4;
    struct scsi_task *t = send(cdb, 10, SCSI_XFER_READ, 1024, NULL);
    if (t->status != SCSI_STATUS_GOOD || t->datain.size < 8) { report(t); exit(0); }
    return t;
}

static int order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The names of the targets that this initiator is told of. */
static int targets(const char *portal)
{
    iscsi_set_session_type(iscsi, ISCSI_SESSION_DISCOVERY);
    if (iscsi_connect_sync(iscsi, portal) || iscsi_login_sync(iscsi)) die("login");
    struct iscsi_discovery_address *list = iscsi_discovery_sync(iscsi);
    for (struct iscsi_discovery_address *t = list; t; t = t->next) puts(t->target_name);
    puts("END");
    return 0;
}

/* One session that goes on until there is a file of this name. */
static int watch(const char *file)
{
    puts("WATCHING");
    fflush(stdout);
    while (access(file, F_OK)) {
        struct scsi_task *t = iscsi_read10_sync(iscsi, lun, 0, 512, 512, 0, 0, 0, 0, 0);
        if (!t || (t->status != SCSI_STATUS_GOOD && t->status != SCSI_STATUS_CHECK_CONDITION)) {
            puts("LOST");
            return 0;
        }
        scsi_free_scsi_task(t);
        usleep(50000);
    }
    puts("GOOD");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 4) { fprintf(stderr, "usage: iscsi_pr URL WHO COMMAND...\n"); return 2; }
    char name[64];
    int who = atoi(argv[2]);
    snprintf(name, sizeof name, "iqn.2000-01.test.initiator:%d", who);
    iscsi = iscsi_create_context(name);
    struct iscsi_url *url = iscsi_parse_full_url(iscsi, argv[1]);
    if (!url) die("url");
    lun = url->lun;
    if (url->user[0]) iscsi_set_initiator_username_pwd(iscsi, url->user, url->passwd);
    iscsi_set_isid_en(iscsi, 0x1234, who);
    iscsi_set_timeout(iscsi, 20);
    if (!strcmp(argv[3], "targets")) return targets(url->portal);
    iscsi_set_targetname(iscsi, url->target);
    iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
    iscsi_set_noautoreconnect(iscsi, 1);
    if (iscsi_full_connect_sync(iscsi, url->portal, lun)) die("login");

    const char *c = argv[3];
    uint64_t a = argc > 4 ? strtoull(argv[4], NULL, 0) : 0, b = argc > 5 ? strtoull(argv[5], NULL, 0) : 0;
    if (!strcmp(c, "register")) report(pr_out(0x06, 0, 0, a, argc > 5));
    else if (!strcmp(c, "reserve")) report(pr_out(0x01, b, a, 0, 0));
    else if (!strcmp(c, "preempt")) report(pr_out(0x04, argc > 6 ? atoi(argv[6]) : 0, a, b, 0));
    else if (!strcmp(c, "clear")) report(pr_out(0x03, 0, a, 0, 0));
    else if (!strcmp(c, "keys")) {
        struct scsi_task *t = pr_in(0);
        uint64_t keys[64];
        int n = 0;
        for (int o = 8; o + 8 <= t->datain.size && n < 64 && (uint64_t)(o - 8) < (get64(t->datain.data) & 0xffffffff); o += 8)
            keys[n++] = get64(t->datain.data + o);
        qsort(keys, n, sizeof keys[0], order);
        for (int i = 0; i < n; i++) printf("%s0x%llx", i ? " " : "", (unsigned long long)keys[i]);
        puts("");
    } else if (!strcmp(c, "holder")) {
        struct scsi_task *t = pr_in(1);
        if (t->datain.size < 24) puts("none");
        else printf("0x%llx type %d\n", (unsigned long long)get64(t->datain.data + 8), t->datain.data[21] & 15);
    } else if (!strcmp(c, "write") || !strcmp(c, "read")) {
        unsigned char cdb[10] = { c[0] == 'w' ? 0x2a : 0x28 }, block[4096] = { 0 };
        struct scsi_readcapacity10 *rc = NULL;
        struct scsi_task *t = iscsi_readcapacity10_sync(iscsi, lun, 0, 0);
        int size = 512;
        if (t && t->status == SCSI_STATUS_GOOD && (rc = scsi_datain_unmarshall(t))) size = rc->block_size;
        cdb[8] = 1;
        report(send(cdb, 10, c[0] == 'w' ? SCSI_XFER_WRITE : SCSI_XFER_READ, size, c[0] == 'w' ? block : NULL));
    } else if (!strcmp(c, "luns")) {
        struct scsi_task *t = iscsi_reportluns_sync(iscsi, 0, 4096);
        struct scsi_reportluns_list *list = t && t->status == SCSI_STATUS_GOOD ? scsi_datain_unmarshall(t) : NULL;
        if (!list) die("REPORT LUNS");
        for (unsigned i = 0; i < list->num; i++) printf("%s%d", i ? " " : "", list->luns[i]);
        puts("");
    } else if (!strcmp(c, "cold-reset")) {
        printf("%d\n", iscsi_task_mgmt_target_cold_reset_sync(iscsi));
        return 0; /* there may be no session to log out of */
    } else if (!strcmp(c, "watch") && argc > 4) {
        return watch(argv[4]);
    } else {
        fprintf(stderr, "what is %s?\n", c);
        return 2;
    }
    iscsi_logout_sync(iscsi);
    iscsi_destroy_context(iscsi);
    return 0;
}
