;; Copies text as the inside of a JSON string, 32 bytes at a time.
;;
;;   memory       0  what is written for each byte that must be escaped: at most 7 bytes, then their number
;;            65536  the text, at most 65,536 bytes
;;           131072  the result, at most 6 bytes for each
;;
;; Which of the 32 must be escaped is found out for all of them before the first is: nothing that is looked for depends on what was found
;; before, so the processor does much of it at the same time.
;;
;; `scripts/generate-wasm.ts` makes `json-escape-module.ts` of it.
(module
  (memory (export "memory") 9)

  ;; @param length of the text
  ;; @result length of the result
  (func (export "escape") (param $length i32) (result i32)
    (local $in i32) (local $end i32) (local $out i32)
    (local $piece v128) (local $more v128) (local $marks i32) (local $count i32)
    (local $from i32) (local $at i32) (local $escaped i64)
    (local.set $in (i32.const 65536))
    (local.set $end (i32.add (local.get $in) (local.get $length)))
    (local.set $out (i32.const 131072))
    (loop $next
      (local.set $count (i32.sub (local.get $end) (local.get $in)))
      (if (i32.eqz (local.get $count))
        (then (return (i32.sub (local.get $out) (i32.const 131072)))))
      ;; all 32 are copied; what is not plain is written over
      (local.set $piece (v128.load (local.get $in)))
      (local.set $more (v128.load offset=16 (local.get $in)))
      (v128.store (local.get $out) (local.get $piece))
      (v128.store offset=16 (local.get $out) (local.get $more))
      ;; a bit for each that is below a space, a quotation mark or a backslash
      (local.set $marks
        (i32.or
          (i8x16.bitmask
            (v128.or
              (i8x16.eq (local.get $piece) (i8x16.min_u (local.get $piece) (i8x16.splat (i32.const 0x1f))))
              (v128.or
                (i8x16.eq (local.get $piece) (i8x16.splat (i32.const 0x22)))
                (i8x16.eq (local.get $piece) (i8x16.splat (i32.const 0x5c))))))
          (i32.shl
            (i8x16.bitmask
              (v128.or
                (i8x16.eq (local.get $more) (i8x16.min_u (local.get $more) (i8x16.splat (i32.const 0x1f))))
                (v128.or
                  (i8x16.eq (local.get $more) (i8x16.splat (i32.const 0x22)))
                  (i8x16.eq (local.get $more) (i8x16.splat (i32.const 0x5c))))))
            (i32.const 16))))
      ;; what is behind the text does not count
      (if (i32.lt_u (local.get $count) (i32.const 32))
        (then
          (local.set $marks
            (i32.and
              (local.get $marks)
              (i32.sub (i32.shl (i32.const 1) (local.get $count)) (i32.const 1)))))
        (else (local.set $count (i32.const 32))))
      (local.set $from (local.get $in))
      (if (local.get $marks)
        (then
          (loop $each
            (local.set $at (i32.add (local.get $in) (i32.ctz (local.get $marks))))
            (local.set $out (i32.add (local.get $out) (i32.sub (local.get $at) (local.get $from))))
            (local.set $escaped (i64.load (i32.shl (i32.load8_u (local.get $at)) (i32.const 3))))
            (i64.store (local.get $out) (local.get $escaped))
            (local.set $out
              (i32.add (local.get $out) (i32.wrap_i64 (i64.shr_u (local.get $escaped) (i64.const 56)))))
            ;; what follows it, up to the next one
            (local.set $from (i32.add (local.get $at) (i32.const 1)))
            (v128.store (local.get $out) (v128.load (local.get $from)))
            (v128.store offset=16 (local.get $out) (v128.load offset=16 (local.get $from)))
            ;; without the lowest bit
            (local.set $marks (i32.and (local.get $marks) (i32.sub (local.get $marks) (i32.const 1))))
            (br_if $each (local.get $marks)))))
      (local.set $in (i32.add (local.get $in) (local.get $count)))
      (local.set $out (i32.add (local.get $out) (i32.sub (local.get $in) (local.get $from))))
      (br $next))
    (unreachable))
)
