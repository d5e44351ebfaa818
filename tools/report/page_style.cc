#include "tools/report/page_style.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/digest/sha256.h"
#include "core/drawing/markup.h"

namespace tandem {
namespace {

// Neither has characters that XML would have escaped.

// The colours are those of Okabe and Ito, which colour-blind people can tell
// apart; lighter on dark.
constexpr char kStyle[] = R"(
:root{color-scheme:light dark;--ground:#fff;--panel:#f5f6f8;--ink:#1b1f24;--soft:#59626e;
--rule:#d5dae1;--grid:#e4e8ed;--wait:#e9ebee;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b8578c;--c4:#967200;--c5:#3a9bd4;--c6:#555}
@media (prefers-color-scheme:dark){:root{--ground:#14171b;--panel:#1c2026;--ink:#e6e9ee;--soft:#9ba5b2;
--rule:#363d47;--grid:#2a3038;--wait:#2d333b;
--c0:#4ba9e3;--c1:#f58d4d;--c2:#3fcf9f;--c3:#e6a1c9;--c4:#dfbc4a;--c5:#93d2f6;--c6:#c3c9d1}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:78rem;padding:1.2rem 1rem 3rem;background:var(--ground);color:var(--ink);
font:16px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
h1{font-size:1.5rem;line-height:1.2;margin:0 0 .2rem;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:2rem 0 .6rem}
p{margin:.4rem 0}.lead{color:var(--soft);margin:0 0 1rem;overflow-wrap:anywhere}
.note{color:var(--soft);font-size:.875rem}
.warning{border-left:3px solid var(--c1);padding-left:.6rem}
code,pre{font:.875em/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;overflow-wrap:anywhere}
pre{overflow-x:auto;background:var(--panel);padding:.6rem;border-radius:.4rem;overflow-wrap:normal}
.numbers{display:grid;grid-template-columns:repeat(auto-fit,minmax(7.7rem,1fr));gap:.5rem;margin:0}
.numbers div{background:var(--panel);border-radius:.4rem;padding:.5rem .7rem}
.numbers dt{color:var(--soft);font-size:.8125rem}
.numbers dd{margin:0;font-size:1.15rem;font-weight:600}
.numbers dd.more{color:var(--soft);font-size:.75rem;font-weight:400}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.9375rem}
th,td{text-align:left;padding:.15rem .8rem .15rem 0;vertical-align:top;border-bottom:1px solid var(--rule)}
th{font-weight:500;color:var(--soft);max-width:20rem;overflow-wrap:break-word}td{overflow-wrap:anywhere}
.runs{width:max-content}.runs th,.runs td{padding-right:1.4rem}.runs td{max-width:20rem;font-variant-numeric:tabular-nums}
.runs thead th{color:var(--ink);min-width:5rem;max-width:14rem}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:1rem 2rem}
figure{margin:0;min-width:0}
figcaption{display:flex;flex-wrap:wrap;gap:.1rem .7rem;align-items:baseline;margin:.2rem 0 .5rem}
.unit{color:var(--soft);font-size:.875rem}
.legend{display:flex;flex-wrap:wrap;gap:0 1rem;font-size:.875rem}
.key{max-width:100%;overflow-wrap:anywhere}
.key i{display:inline-block;width:1.4em;border-top:3px solid;vertical-align:.25em;margin-right:.4em}
.key i.dashed{border-top-style:dashed}
.key b{font-weight:600;font-variant-numeric:tabular-nums}
.frame{display:grid;grid-template:12rem 1.5rem/3.2rem 1fr;margin-right:1rem;font-size:.75rem;color:var(--soft)}
.main .frame{grid-template-rows:17rem 1.5rem}
.area{position:relative;border-left:1px solid var(--rule);border-bottom:1px solid var(--rule)}
.area svg{position:absolute;width:100%;height:100%;overflow:visible}
.values,.steps{position:relative}
.values span{position:absolute;right:.5rem;transform:translateY(50%)}
.axis{text-align:right;padding:.25rem 1.1rem 0 0}
.steps span{position:absolute;top:.25rem;transform:translateX(-50%)}
path{fill:none;stroke:currentColor;stroke-width:2;stroke-linecap:round;stroke-linejoin:round;vector-effect:non-scaling-stroke}
path.grid{stroke:var(--grid);stroke-width:1}
path.points{stroke-width:1;opacity:.4}
path.dashed{stroke-dasharray:6 5}
path.dots{stroke-width:7;stroke-dasharray:none}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}.c4{color:var(--c4)}.c5{color:var(--c5)}.c6{color:var(--c6)}
.tip{position:absolute;top:.3rem;z-index:1;padding:.3rem .5rem;border-radius:.3rem;background:var(--ground);color:var(--ink);
border:1px solid var(--rule);white-space:pre;pointer-events:none}
.under{position:absolute;top:0;bottom:0;border-left:1px solid var(--soft);pointer-events:none}
.choice{display:flex;flex-wrap:wrap;align-items:center;margin-top:1rem}.choice figure{width:100%}
.choice input{order:1;margin:0 .3rem 0 0}.choice label{order:1;font-size:.875rem;color:var(--soft);margin-right:.8rem}
#log:checked~.linear,#linear:checked~.logarithmic{display:none}
.mesh{border-spacing:.4rem;border-collapse:separate;margin-left:-.4rem;display:block;overflow-x:auto}
.mesh td,.mesh th{border:0;padding:.3rem .6rem}
.mesh td b{font-weight:600;white-space:nowrap}
.mesh td{background:var(--panel);border-radius:.4rem;font-size:.875rem}
.mesh td:empty{background:none}
.schedule svg{min-width:44rem;max-width:100%;height:auto;display:block}
.schedule .ground{fill:none}.schedule .words{fill:var(--ink)}.schedule .waiting{fill:var(--wait)}
.schedule rect{stroke:var(--ground)}
.schedule figcaption{color:var(--soft);font-size:.875rem}
.bar{display:flex;height:1.1rem;border-radius:.3rem;overflow:hidden;background:var(--wait);max-width:40rem}
.bar span{background:currentColor}
.ranks{width:100%;max-width:44rem}.ranks td{white-space:nowrap}.ranks .bar{min-width:6rem}
details{margin:.6rem 0}summary{cursor:pointer;color:var(--soft)}
footer{margin-top:2.5rem;color:var(--soft);font-size:.8125rem;overflow-wrap:anywhere}
@media (max-width:40rem){body{padding:.8rem .8rem 2rem}h1{font-size:1.25rem}
.numbers{grid-template-columns:repeat(auto-fit,minmax(6.4rem,1fr))}.numbers div{padding:.35rem .5rem}.numbers dd{font-size:1.05rem}
.steps .odd{display:none}.frame{margin-right:.8rem}.main .frame{grid-template-rows:13rem 1.5rem}}
@media print{:root{--panel:#fff;--ground:#fff;--ink:#000}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
body{max-width:none;padding:0;font-size:11pt}figure,tr,.numbers div{break-inside:avoid}h2{break-after:avoid}
.numbers div{border:1px solid var(--rule)}.choice input,.choice label{display:none}}
)";

constexpr char kScript[] = R"(
(function () {
  "use strict";
  function scaleOf(text) {
    var words = text.split(" "), least = +words[0], most = +words[1];
    var unit = words[3] === "percent" ? 100 : 1;
    return words[2] === "log"
      ? function (part) { return unit * least * Math.pow(most / least, part); }
      : function (part) { return unit * (least + (most - least) * part); };
  }
  function pointsOf(path) {
    return Array.from(path.getAttribute("d").matchAll(/(-?\d+) (-?\d+)/g),
      function (pair) { return [+pair[1] / 2000, 1 - pair[2] / 1000]; });
  }
  function digits(value) { return String(Number(value.toPrecision(4))); }
  document.querySelectorAll(".area").forEach(function (area) {
    var x = scaleOf(area.dataset.x), y = scaleOf(area.dataset.y);
    var unit = area.dataset.y.endsWith("percent") ? " %" : "";
    var names = area.closest("figure").querySelectorAll(".key bdi");
    var lines = null;
    var tip = document.createElement("div"), under = document.createElement("div");
    tip.className = "tip";
    under.className = "under";
    function hide() { tip.remove(); under.remove(); }
    area.addEventListener("pointerleave", hide);
    area.addEventListener("pointermove", function (event) {
      lines = lines || Array.from(area.querySelectorAll("path.line"), function (path) {
        return [names[path.dataset.line].textContent, pointsOf(path)];
      });
      var box = area.getBoundingClientRect();
      var part = (event.clientX - box.left) / box.width;
      var found = null;
      var text = lines.map(function (line) {
        var nearest = line[1].reduce(function (best, point) {
          return Math.abs(best[0] - part) > Math.abs(point[0] - part) ? point : best;
        });
        if (found === null || Math.abs(found - part) > Math.abs(nearest[0] - part)) {
          found = nearest[0];
        }
        return line[0] + " " + digits(y(nearest[1])) + unit;
      });
      if (found === null) { return; }
      tip.textContent = ["step " + Math.round(x(found))].concat(text).join("\n");
      under.style.left = 100 * found + "%";
      area.append(under, tip);
      var left = found * box.width + 10;
      if (left + tip.offsetWidth > box.width) { left = found * box.width - 10 - tip.offsetWidth; }
      tip.style.left = Math.max(0, left) + "px";
    });
  });
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (each) { each.open = true; });
  });
}());
)";

// What a browser compares the script with.
std::string ScriptDigest() {
  Sha256 digest;
  digest.Update(kScript, sizeof(kScript) - 1);
  const auto bytes = digest.Finish();
  return absl::Base64Escape(absl::string_view(
      reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace

std::string PageBegin(const std::string& title) {
  return absl::StrCat(
      "<!DOCTYPE html>\n"
      "<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n"
      "<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
      "&#39;none&#39;; style-src &#39;unsafe-inline&#39;; script-src "
      "&#39;sha256-",
      ScriptDigest(),
      "&#39;; base-uri &#39;none&#39;; form-action &#39;none&#39;\"/>\n"
      "<title>",
      EscapedMarkup(title), "</title>\n<style>", kStyle,
      "</style>\n</head>\n<body>\n");
}

std::string PageEnd() {
  return absl::StrCat("<script>", kScript, "</script>\n</body>\n</html>\n");
}

}  // namespace tandem
