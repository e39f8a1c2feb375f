/* A program gives up capabilities, may gain none any more, leaves its network and mount namespaces, restricts itself by landlock, becomes
 * another user: no thread of its process is left with more than that, what it may not do is refused as always, and copies are
 * elided before and after. The mount and time namespaces may be entered, which the kernel refuses where threads share them. */
#include "process.h"
#include <dirent.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>

static unsigned input = 1;
static void elides(void) {
    char *v = VIEW(input);
    MUST(is_input(v, SIZE, input++, 0));
}

/* How many threads show another value than the calling one for a line of their status, or for a link. */
static int others(const char *file, const char *line) {
    char path[600], text[4096], own[256] = "", value[256];
    int differ = 0;
    DIR *tasks = opendir("/proc/self/task");
    MUST(tasks);
    for (int round = 0; round < 2; round++) {
        rewinddir(tasks);
        for (struct dirent *task; (task = readdir(tasks));) {
            if (*task->d_name == '.') continue;
            snprintf(path, sizeof path, "/proc/self/task/%s/%s", task->d_name, file);
            memset(value, 0, sizeof value);
            if (line) {
                FILE *f = fopen(path, "r");
                MUST(f);
                text[fread(text, 1, sizeof text - 1, f)] = 0;
                fclose(f);
                char *at = strstr(text, line);
                MUST(at);
                memcpy(value, at, strcspn(at, "\n") < sizeof value ? strcspn(at, "\n") : sizeof value - 1);
            } else
                MUST(readlink(path, value, sizeof value - 1) > 0);
            if (round == 0 && atoi(task->d_name) == getpid()) strcpy(own, value);
            if (round == 1 && strcmp(own, value)) differ++;
        }
    }
    closedir(tasks);
    return differ;
}
static void same(const char *what, const char *file, const char *line) { say("%s: threads that differ: %d", what, others(file, line)); }

static void drop(int (*set)(struct __user_cap_header_struct *, struct __user_cap_data_struct *)) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
    MUST(set(&header, none) == 0);
}
extern int capset(struct __user_cap_header_struct *, struct __user_cap_data_struct *);
static int capset_by_number(struct __user_cap_header_struct *h, struct __user_cap_data_struct *d) {
    return (int)syscall(SYS_capset, h, d);
}

static void in_child(void (*what)(void)) {
    int status, pid = fork();
    if (pid == 0) {
        alarm(20);
        elides();
        what();
        elides();
        exit(0);
    }
    MUST(waitpid(pid, &status, 0) == pid);
    say("status %x", status);
}

static void capabilities(void) {
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    same("no_new_privs", "status", "NoNewPrivs:");
    MUST(prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0) == 0);
    drop(capset_by_number);
    same("effective", "status", "CapEff:");
    same("permitted", "status", "CapPrm:");
    /* Refused plainly; where a thread may that libc knows, libc ends the process. */
    int r = setuid(65534);
    say("setuid without the capability: %d %s", r, r ? strerror(errno) : "");
    drop(capset);
}
static void namespaces(void) {
    MUST(unshare(CLONE_NEWNET | CLONE_NEWNS) == 0);
    same("network", "ns/net", NULL);
    same("mounts", "ns/mnt", NULL);
    elides();
    int fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    say("setns to a mount namespace: %d", setns(fd, CLONE_NEWNS));
    close(fd);
    elides();
    fd = open("/proc/self/ns/time", O_RDONLY | O_CLOEXEC);
    say("setns to a time namespace: %d", fd < 0 ? 0 : setns(fd, 0x80));
    close(fd);
    elides();
    MUST(unshare(CLONE_NEWUSER) == 0);
    same("users", "ns/user", NULL);
}
static void landlock(void) {
    struct {
        uint64_t files, network, scope;
    } rules = {1 << 2 /* writing files */, 0, 0};
    int set = (int)syscall(444 /* landlock_create_ruleset */, &rules, 8, 0);
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (set >= 0) MUST(syscall(446 /* landlock_restrict_self */, set, 0) == 0);
}
static void another_user(void) {
    MUST(setgid(65534) == 0 && setuid(65534) == 0);
    same("user", "status", "Uid:");
    same("group", "status", "Gid:");
}
/* A child of vfork shares our memory, but changes only itself. */
static void in_vfork_child(void) {
    char *v = VIEW(input);
    int status, pid = vfork();
    if (pid == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || unshare(CLONE_NEWNET) || setgid(65534) || setuid(65534)) _exit(1);
        _exit(is_input(v, SIZE, input, 0) ? 0 : 2);
    }
    MUST(waitpid(pid, &status, 0) == pid && status == 0);
    input++;
}
static volatile int stop;
static void *copies(void *unused) {
    (void)unused;
    char *from = fresh(SIZE), *to = fresh(SIZE);
    while (!stop) {
        receive(from, SIZE, 77);
        memcpy(to, from, SIZE);
        MUST(is_input(to, SIZE, 77, 0));
    }
    return NULL;
}
/* Our thread is replaced while other threads of the program have faults that it answers. */
static void while_others_fault(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, copies, NULL);
    for (int round = 0; round < 200; round++) {
        MUST(setgroups(0, NULL) == 0);
        elides();
    }
    stop = 1;
    pthread_join(thread, NULL);
}

int main(void) {
    if (geteuid() != 0) return 0;
    in_child(capabilities);
    in_child(namespaces);
    in_child(landlock);
    in_child(another_user);
    in_child(in_vfork_child);
    in_child(while_others_fault);
    return 0;
}
