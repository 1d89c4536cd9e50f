/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * gen_rep_words() of qemu-rep-words.patch, for programs that are built already: the bytes of
 * "words" in src/kdelta/guests/patches.toml.
 *
 *	as --defsym BUILD=12 -o words.o qemu-rep-words.S
 *	ld -o words -Ttext=PLACE --defsym=NAME=ADDRESS ... words.o
 *
 *	BUILD   PLACE     gen_stos  gen_movs  rcx        rsi        rdi
 *	12      0xb0fcd8  0x852bb0  0x853da0  0x1b71008  0x1b71030  0x1b71038
 *	13      0xb38d38  0x888940  0x889b00  0x1bb4f28  0x1bb4f50  0x1bb4f58
 *
 * The program exports all other names.  PLACE is behind its code, in a page that is mapped with it
 * and has zeros there.
 *
 * It is called where do_gen_rep() calls gen_set_label(loop), and ends with that.  What lies in
 * registers and on the stack there differs from build to build; members of DisasContext do not.
 */
	.set	T0, 0xd8
	.set	AFLAG, 0x80
	.set	OVERRIDE, 0x88

	.set	MO_8, 0
	.set	MO_64, 3
	.set	LT, 2
	.set	TSTEQ, 12
	.set	TSTNE, 13

	.set	PUSHED, 7 * 8		/* five registers, an empty word, the way back */
.if BUILD == 12
	.set	OT, 0x20
	.set	DSHIFT, 0x18
.else
	.set	OT, 0x20
	.set	DSHIFT, 0x10
	.set	FN, 0x18
.endif

	.macro	brcondi condition, value, immediate, label
	mov	$\condition, %edi
	mov	\value, %rsi
	mov	$\immediate, %edx
	mov	\label, %rcx
	call	tcg_gen_brcondi_i64
	.endm

	.macro	arith what, result, value, immediate
	mov	\result, %rdi
	mov	\value, %rsi
	mov	$\immediate, %edx
	call	tcg_gen_\what\()i_i64
	.endm

	.globl	_start
_start:
	push	%rbx
	push	%r12
	push	%r13
	push	%r14
	push	%r15
	push	%rax
	mov	%rdi, %r12		/* loop */
.if BUILD == 12				/* s: rbx, fn: r13, cx_next: rbp */
	test	%r14d, %r14d		/* can_loop */
	je	bytes
.else
	test	%ebx, %ebx		/* !can_loop */
	jne	bytes
	mov	%r14, %rbx
	mov	PUSHED + FN(%rsp), %r13
.endif
	cmpl	$MO_8, PUSHED + OT(%rsp)
	jne	bytes
	cmpl	$MO_64, AFLAG(%rbx)
	jne	bytes
	cmpb	$-1, OVERRIDE(%rbx)
	jne	bytes
	mov	rdi(%rip), %r15
	lea	gen_stos(%rip), %rax
	cmp	%rax, %r13
	je	1f
	mov	rsi(%rip), %r15
	lea	gen_movs(%rip), %rax
	cmp	%rax, %r13
	jne	bytes
1:
	call	gen_new_label
	mov	%rax, %r14		/* words */
	brcondi	LT, PUSHED+DSHIFT(%rsp), 0, %r12
	call	tcg_temp_new_i64
	mov	%rax, %rdi
	mov	%r15, %rsi
	mov	rdi(%rip), %rdx
	mov	%rax, %r15		/* t */
	call	tcg_gen_or_i64
	brcondi	TSTNE, %r15, 7, %r12

	lea	gen_stos(%rip), %rax
	cmp	%rax, %r13
	jne	2f
	mov	T0(%rbx), %rdi
	mov	%rdi, %rsi
	call	tcg_gen_ext8u_i64
	mov	T0(%rbx), %rdi
	mov	%rdi, %rsi
	movabs	$0x0101010101010101, %rdx
	call	tcg_gen_muli_i64
2:
	arith	sub, %r15, %rbp, 1
	brcondi	TSTEQ, %r15, 0xfff8, %r12

	mov	%r14, %rdi
	call	gen_set_label
	mov	$8, %edi
	call	tcg_constant_i64
	mov	%rbx, %rdi
	mov	$MO_64, %esi
	mov	%rax, %rdx
	call	*%r13
	arith	sub, %rbp, %rbp, 8
	arith	add, rcx(%rip), %rbp, 1
	arith	sub, %r15, %rbp, 1
	brcondi	TSTNE, %r15, 0xfff8, %r14
bytes:
	mov	%r12, %rdi
	pop	%rax
	pop	%r15
	pop	%r14
	pop	%r13
	pop	%r12
	pop	%rbx
	jmp	gen_set_label
