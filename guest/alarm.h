/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What wakes the courier in a guest that was restored.
 *
 * QEMU before 10.2 does not save a riscv64's timer: the one that was set is gone, while the kernel
 * takes it for set, and sets none that would end later.  The alarm of the guest's clock
 * (google,goldfish-rtc) is saved, and wakes it.  The lost timer was that of our own sleep, which ends
 * right behind the save, before any other: given up, it makes the kernel set its next one.  The
 * guest stands still until its alarm, whatever the host does: all restores are alike.
 */
#ifndef KDELTA_ALARM_H
#define KDELTA_ALARM_H

#include <fcntl.h>
#include <linux/rtc.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define ALARM_CLOCK "/dev/rtc0"
#define ALARM_S 2

/* Sets the alarm one to two seconds ahead. */
static bool alarm_set(int clock)
{
	struct rtc_time now;
	struct tm later;
	time_t at;

	if (ioctl(clock, RTC_RD_TIME, &now))
		return false;
	later = (struct tm){ .tm_sec = now.tm_sec, .tm_min = now.tm_min, .tm_hour = now.tm_hour,
			     .tm_mday = now.tm_mday, .tm_mon = now.tm_mon, .tm_year = now.tm_year };
	at = timegm(&later) + ALARM_S;
	if (!gmtime_r(&at, &later))
		return false;
	now = (struct rtc_time){ .tm_sec = later.tm_sec, .tm_min = later.tm_min,
				 .tm_hour = later.tm_hour, .tm_mday = later.tm_mday,
				 .tm_mon = later.tm_mon, .tm_year = later.tm_year };
	return !ioctl(clock, RTC_ALM_SET, &now) && !ioctl(clock, RTC_AIE_ON, 0);
}

/*
 * Sleeps until the alarm, over a save that comes right before a time of the monotonic clock.
 * Returns what does not work, NULL when all does.
 */
static const char *alarm_sleep(const struct timespec *save)
{
	const struct itimerspec sleep = { .it_value = *save }, none = { 0 };
	int clock = open(ALARM_CLOCK, O_RDONLY | O_CLOEXEC);
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	unsigned long rings;

	if (clock < 0 || timer < 0)
		return ALARM_CLOCK " (CONFIG_RTC_DRV_GOLDFISH=y)";
	if (!alarm_set(clock))
		return "RTC_ALM_SET";
	if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &sleep, NULL))
		return "timerfd_settime";
	if (read(clock, &rings, sizeof(rings)) != sizeof(rings))
		return "read of " ALARM_CLOCK;
	if (timerfd_settime(timer, 0, &none, NULL))
		return "timerfd_settime";
	close(timer);
	close(clock);
	return NULL;
}

#endif
