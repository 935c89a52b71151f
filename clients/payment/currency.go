package payment

import "strings"

// threeDecimals are the currencies whose smallest unit is a thousandth. Stripe
// takes only amounts of them that end in 0 (https://docs.stripe.com/currencies).
var threeDecimals = map[string]bool{"bhd": true, "jod": true, "kwd": true, "omr": true, "tnd": true}

// currencies are those that the library knows (currency.go of stripe-go v85),
// those with three decimals, and the newer byn, mmk and sle. An account may be
// able to charge in fewer; then Stripe says so.
var currencies = func() map[string]bool {
	set := map[string]bool{}
	for name := range strings.FieldsSeq(`
		aed afn all amd ang aoa ars aud awg azn bam bbd bdt bgn bhd bif bmd bnd bob
		brl bsd bwp byn bzd cad cdf chf clp cny cop crc cve czk djf dkk dop dzd eek
		egp etb eur fjd fkp gbp gel gip gmd gnf gtq gyd hkd hnl hrk htg huf idr ils
		inr isk jmd jod jpy kes kgs khr kmf krw kwd kyd kzt lak lbp lkr lrd lsl ltl
		lvl mad mdl mga mkd mmk mnt mop mro mur mvr mwk mxn myr mzn nad ngn nio nok
		npr nzd omr pab pen pgk php pkr pln pyg qar ron rsd rub rwf sar sbd scr sek
		sgd shp sle sll sos srd std svc szl thb tjs tnd top try ttd twd tzs uah ugx
		usd uyu uzs vef vnd vuv wst xaf xcd xof xpf yer zar zmw`) {
		set[name] = true
	}
	return set
}()
