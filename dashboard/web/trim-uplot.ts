import type { Plugin } from 'vite';

// Parts of uPlot that this page does not use, but that the bundler cannot remove because they
// depend on properties and options: line shapes other than straight lines without points, the
// legend, joining of tables, scales that are not linear, formatting of times, facets,
// dragging, bands and cursors that charts share. They are two fifths of uPlot. The build fails unless each text occurs exactly once,
// so that a new version of uPlot is not cut in the wrong place.
const unused: [string, string][] = [
	['let paths = uPlot.paths = {\n\t\tpoints,\n\t};', ''],
	['(paths.linear  = linear);', ''],
	['const pointsPath = points() ;', 'const pointsPath = () => null;'],
	['(paths.stepped = stepped);', ''],
	['(paths.bars    = bars);', ''],
	['(paths.spline  = monotoneCubic);', ''],
	['const showLegend = legend.show;', 'const showLegend = false;'],
	['uPlot.join = join;', ''],
	['uPlot.fmtDate = fmtDate;', ''],
	['uPlot.tzDate  = tzDate;', ''],
	['const _timeAxisSplits = (ms == 1 ? timeAxisSplitsMs(_tzDate) : timeAxisSplitsS(_tzDate));', ''],
	['const _timeAxisVals   = timeAxisVals(_tzDate, timeAxisStamps((ms == 1 ? _timeAxisStampsMs : _timeAxisStampsS), _fmtDate));', ''],
	['const _timeSeriesVal  = timeSeriesVal(_tzDate, timeSeriesStamp(_timeSeriesStamp, _fmtDate));', ''],
	['const _fmtDate = (opts.fmtDate || fmtDate);', ''],
	['const [ timeIncrsMs, _timeAxisStampsMs, timeAxisSplitsMs ] = genTimeStuffs(1);', ''],
	['const [ timeIncrsS,  _timeAxisStampsS,  timeAxisSplitsS  ] = genTimeStuffs(1e-3);', ''],
	['let isTime = mode == 1 && scales[s.scale].time;', 'const isTime = false;'],
	['let isTime = sc.time;\n\n\t\t\taxis.size', 'const isTime = false;\n\n\t\t\taxis.size'],
	['sc.distr == 3 ? logAxisSplits : sc.distr == 4 ? asinhAxisSplits : ', ''],
	['sc.distr >= 3 && sc.log == 10 ? log10AxisValsFilt : sc.distr == 3 && sc.log == 2 ? log2AxisValsFilt : ', ''],
	['const mode = u.mode;', 'const mode = 1;'],
	['const mode = self.mode;', 'const mode = 1;'],
	['onMouse(mousedown,  over, mouseDown);', ''],
	['onMouse(dblclick, over, dblClick);', ''],
	['events.mousedown = mouseDown;', ''],
	['events.mouseup = mouseUp;', ''],
	['events.dblclick = dblClick;', ''],
	['if (select.show && dragging) {', 'if (false) {'],
	['if (dragging) {', 'if (false) {'],
	['const cursorFocus = focus.prox >= 0;', 'const cursorFocus = false;'],
	['const cursorOnePt = cursorFocus && points.one;', 'const cursorOnePt = false;'],
	['return dataMin == null ? nullNullTuple : rangeLog(dataMin, dataMax, self.scales[scale].log, false);', ''],
	['return dataMin == null ? nullNullTuple : rangeAsinh(dataMin, dataMax, self.scales[scale].log, false);', ''],
	['[_min, _max] = rangeLog(_min, _min, scaleX.log, false);', ';'],
	['[_min, _max] = rangeAsinh(_min, _min, scaleX.log, false);', ';'],
	['uPlot.rangeLog = rangeLog;', ''],
	['uPlot.rangeAsinh = rangeAsinh;', ''],
	['self.addSeries = addSeries;', ''],
	['self.delSeries = delSeries;', ''],
	['self.addBand = addBand;', ''],
	['self.setBand = setBand;', ''],
	['self.delBand = delBand;', ''],
	['if (axis.label != null) {', 'if (false) {'],
	['self.batch = batch;', ''],
	['uPlot.sync = _sync;', ''],
	['const sync = _sync(syncKey);', ''],
	['\tsync.sub(self);', ''],
	['\tsync.unsub(self);', ''],
	['if (syncOpts.filters.pub(type, src, x, y, w, h, i))\n\t\t\tsync.pub(type, src, x, y, w, h, i);', ''],
	['flags != 0 && bands.forEach((b, bi) => {', 'false && bands.forEach((b, bi) => {'],
	['bands.forEach(b => {\n\t\tb.fill', 'false && bands.forEach(b => {\n\t\tb.fill'],
	['for (let i = 0; i < bands.length; i++) {\n\t\tlet b = bands[i];\n\n\t\t// is a "from" band edge', 'if (false) {\n\t\tlet b = bands[i];\n'],
	['if (e != null) {\n\t\t\t_l = e.clientX', 'if (true) {\n\t\t\t_l = e.clientX'],
];

export const trimPlot: Plugin = {
	name: 'trim-uplot',
	transform(code, id) {
		if (!id.endsWith('/uPlot.esm.js')) return;
		for (const [text, instead] of unused) {
			if (code.split(text).length !== 2) throw new Error(`uPlot does not contain ${JSON.stringify(text)} exactly once: adapt trim-uplot.ts to its version`);
			code = code.replace(text, () => instead);
		}
		return { code, map: null };
	},
};
