/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Of unmap.c: what has become huge pages has been touched. */

static void map(const struct kd_scenario *s, char *start)
{
	kd_map_at(start, s->bytes, KD_RW, s->flags & SHARED ? MAP_SHARED : MAP_PRIVATE, -1);
	if (s->flags & THP)
		kd_fault_thp(start, s->bytes);
	else
		kd_fault_in(start, s->bytes, false);
}
